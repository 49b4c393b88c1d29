/* SPDX-License-Identifier: BSD-3-Clause */
/* rdmakit redis: the command line. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "redis/client/buffer.h"
#include "tools/redis_cli.h"
#include "tools/tool.h"

static const char help[] =
"Usage: rdmakit redis [OPTIONS] [COMMAND [ARGUMENT...]]\n"
"\n"
"Run a command on a Redis or Valkey server and print the reply; without a\n"
"command, read them from the terminal or, one per line, from standard input.\n"
"\n"
"  -h HOST          server (127.0.0.1), over RDMA unless --tcp\n"
"  -p PORT          port (6379)\n"
"  --tcp            over TCP\n"
"  -s SOCKET        over this unix socket\n"
"  -u URI           rdma://, tcp:// or unix:// with [USER:PASSWORD@], [/DB]\n"
"  -n DB            database (0)\n"
"  -a PASSWORD      password; REDISCLI_AUTH in the environment is safer\n"
"  --user USER      user name, with -a\n"
"  --device NAME    RDMA device: auto, soft or a name (auto)\n"
"  -2, -3           speak RESP2 (the default) or RESP3\n"
"  -r COUNT         run the command so many times, -1 for ever\n"
"  -i SECONDS       wait so long between (fractions are fine)\n"
"  -x               take the last argument from standard input\n"
"  -e               exit code 1 if the reply is an error\n"
"  --raw, --no-raw  plain or annotated replies (default: plain unless the\n"
"                   output is a terminal)\n"
"  --csv, --json    replies as CSV or JSON (--json speaks RESP3 unless -2)\n"
"  --show-pushes yes|no  print messages that are no reply (default: yes on a\n"
"                   terminal)\n"
"\n"
"The exit code is 1 if the server could not be reached.\n";

enum option_code {
	OPT_TCP = 256,
	OPT_USER,
	OPT_DEVICE,
	OPT_RAW,
	OPT_NO_RAW,
	OPT_CSV,
	OPT_JSON,
	OPT_SHOW_PUSHES,
	OPT_NO_WARNING,
	OPT_HELP,
};

static const struct option long_options[] = {
	{ "tcp", no_argument, NULL, OPT_TCP },
	{ "user", required_argument, NULL, OPT_USER },
	{ "pass", required_argument, NULL, 'a' },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "raw", no_argument, NULL, OPT_RAW },
	{ "no-raw", no_argument, NULL, OPT_NO_RAW },
	{ "csv", no_argument, NULL, OPT_CSV },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "show-pushes", required_argument, NULL, OPT_SHOW_PUSHES },
	{ "show-push", required_argument, NULL, OPT_SHOW_PUSHES },
	{ "no-auth-warning", no_argument, NULL, OPT_NO_WARNING },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 },
};

/* What is only known to be consistent once all options are read. */
struct arguments {
	struct cli_options *options;
	const char *uri, *db, *user, *password;
	int resp; /* 0: not said */
};

static int copy_text(const char *name, const char *option, char *to,
		     size_t to_bytes, const char *text)
{
	if (strlen(text) >= to_bytes)
		return rk_tool_usage_error(name,
					   "%s is longer than %zu bytes",
					   option, to_bytes - 1);
	strcpy(to, text);
	return 0;
}

static int take_number(const char *name, const char *option, long long min,
		       long long max, long long *out)
{
	if (!rk_tool_number(optarg, min, max, out))
		return 0;
	return rk_tool_usage_error(name,
				   "%s takes a number from %lld to %lld, not "
				   "'%s'", option, min, max, optarg);
}

/* Where the server is. */
static int parse_place(struct arguments *arguments, const char *name, int code)
{
	struct rk_uri *uri = &arguments->options->uri;
	long long number;
	int ret = 0;

	switch (code) {
	case 'u':
		arguments->uri = optarg;
		break;
	case 'h':
		ret = copy_text(name, "-h", uri->host, sizeof(uri->host),
				optarg);
		break;
	case 'p':
		ret = take_number(name, "-p", 1, 65535, &number);
		uri->port = ret ? 0 : (uint16_t)number;
		break;
	case 's':
		strcpy(uri->scheme, "unix");
		ret = copy_text(name, "-s", uri->path, sizeof(uri->path),
				optarg);
		break;
	case OPT_TCP:
		strcpy(uri->scheme, "tcp");
		break;
	case 'n':
		ret = take_number(name, "-n", 0, INT32_MAX, &number);
		arguments->db = optarg;
		break;
	case 'a':
		arguments->password = optarg;
		break;
	case OPT_USER:
		arguments->user = optarg;
		break;
	case OPT_DEVICE:
		arguments->options->device = optarg;
		break;
	default: /* an option letter, no enum of ours */
		return -1;
	}
	return ret;
}

/* How commands are run and replies are shown. */
static int parse_manner(struct arguments *arguments, const char *name,
			int code)
{
	struct cli_options *options = arguments->options;
	long long number;
	char *end;
	int ret = 0;

	switch (code) {
	case '2':
	case '3':
		arguments->resp = code - '0';
		break;
	case 'r':
		ret = take_number(name, "-r", -1, INT32_MAX, &number);
		options->repeat = ret ? 0 : (long)number;
		break;
	case 'i':
		options->interval_s = strtod(optarg, &end);
		if (*end || end == optarg || !(options->interval_s >= 0) ||
		    options->interval_s > 86400)
			ret = rk_tool_usage_error(
				name, "-i takes seconds, not '%s'", optarg);
		break;
	case 'x':
		options->argument_from_stdin = true;
		break;
	case 'e':
		options->fail_on_error = true;
		break;
	case OPT_RAW:
		options->format = CLI_FORMAT_RAW;
		break;
	case OPT_NO_RAW:
		options->format = CLI_FORMAT_PEOPLE;
		break;
	case OPT_CSV:
		options->format = CLI_FORMAT_CSV;
		break;
	case OPT_JSON:
		options->format = CLI_FORMAT_JSON;
		break;
	case OPT_SHOW_PUSHES:
		options->show_pushes = *optarg == 'y' || *optarg == 'Y';
		break;
	case OPT_NO_WARNING:
		break;
	default: /* an option letter, no enum of ours */
		return -1;
	}
	return ret;
}

/* Everything goes into options->uri; what was said beside -u wins. */
static int settle(struct arguments *arguments, const char *name)
{
	struct cli_options *options = arguments->options;
	struct rk_uri *uri = &options->uri;
	char error[256];
	int ret = 0;

	if (arguments->uri &&
	    rk_uri_parse(uri, arguments->uri, error, sizeof(error)))
		return rk_tool_usage_error(name, "%s", error);
	if (uri->path[0])
		uri->host[0] = '\0';
	if (arguments->db)
		uri->db = (unsigned)strtoul(arguments->db, NULL, 10);
	if (!arguments->password && !uri->password[0])
		arguments->password = getenv("REDISCLI_AUTH");
	if (arguments->password)
		ret = copy_text(name, "the password", uri->password,
				sizeof(uri->password), arguments->password);
	if (!ret && arguments->user)
		ret = copy_text(name, "the user", uri->user,
				sizeof(uri->user), arguments->user);
	if (arguments->resp)
		options->resp3 = arguments->resp == 3;
	else
		options->resp3 = options->format == CLI_FORMAT_JSON;
	return ret;
}

/* 0, or an exit code plus one. */
static int parse_arguments(struct arguments *arguments, int argc, char **argv)
{
	int code, at, ret;

	opterr = 0;
	optind = 1;
	for (;;) {
		at = optind;
		/* '+': what follows the command is its own. */
		code = getopt_long(argc, argv, "+:u:h:p:s:n:a:23r:i:xe",
				   long_options, NULL);
		if (code == -1)
			break;
		if (code == OPT_HELP) {
			fputs(help, stdout);
			return 1 + RK_EXIT_OK;
		}
		ret = parse_place(arguments, argv[0], code);
		if (ret < 0)
			ret = parse_manner(arguments, argv[0], code);
		if (ret < 0)
			ret = rk_tool_usage_error(
				argv[0], code == ':' ? "%s needs a value"
						     : "there is no option %s",
				argv[at]);
		if (ret)
			return 1 + ret;
	}
	ret = settle(arguments, argv[0]);
	return ret ? 1 + ret : 0;
}

/* -x: all of standard input is one more argument. */
static int add_stdin(struct cli_args *args)
{
	struct rk_buffer input = { 0 };
	size_t got;
	int ret;

	do {
		ret = rk_buffer_reserve(&input, 65536);
		if (ret)
			break;
		got = fread(rk_buffer_tail(&input), 1, 65536, stdin);
		rk_buffer_commit(&input, got);
	} while (got);
	if (!ret)
		ret = cli_args_add(args, rk_buffer_head(&input),
				   rk_buffer_bytes(&input));
	rk_buffer_free(&input);
	return ret;
}

static void pause_s(double seconds)
{
	struct timespec time = { .tv_sec = (time_t)seconds };

	time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
	nanosleep(&time, NULL);
}

static int run_command(struct cli_session *session, char **argv, int argc)
{
	const struct cli_options *options = session->options;
	struct cli_args args = { 0 };
	int ret = 0;

	for (int i = 0; i < argc && !ret; i++)
		ret = cli_args_add(&args, argv[i], strlen(argv[i]));
	if (!ret && options->argument_from_stdin)
		ret = add_stdin(&args);
	if (ret)
		fprintf(stderr, "rdmakit redis: out of memory\n");
	for (long left = options->repeat; left && !ret; left -= left > 0) {
		ret = cli_session_connect(session);
		if (!ret)
			ret = cli_session_run(session, &args);
		if (options->interval_s > 0 && left != 1)
			pause_s(options->interval_s);
	}
	cli_args_free(&args);
	return ret || session->failed ? RK_EXIT_FAILED : RK_EXIT_OK;
}

int rk_tool_redis(int argc, char **argv)
{
	static struct cli_options options;
	struct arguments arguments = { .options = &options };
	struct cli_session session = { .options = &options };
	int ret;

	options = (struct cli_options){
		.uri = { .scheme = "rdma", .host = "127.0.0.1",
			 .port = RK_REDIS_PORT },
		.format = isatty(STDOUT_FILENO) ? CLI_FORMAT_PEOPLE
						: CLI_FORMAT_RAW,
		.show_pushes = isatty(STDOUT_FILENO),
		.repeat = 1,
	};
	ret = parse_arguments(&arguments, argc, argv);
	if (ret)
		return ret - 1;
	session.db = options.uri.db;
	session.resp3 = options.resp3;
	if (optind < argc || options.argument_from_stdin)
		ret = run_command(&session, argv + optind, argc - optind);
	else if (cli_session_connect(&session))
		ret = RK_EXIT_FAILED;
	else if (isatty(STDIN_FILENO))
		ret = cli_interactive(&session);
	else
		ret = cli_from_stdin(&session);
	cli_session_close(&session);
	return ret;
}
