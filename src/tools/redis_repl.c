/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where commands come from when there are none on the command line: a
 * terminal, with libedit, or lines of standard input.
 */
#include <errno.h>
#include <histedit.h>
#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "tools/redis_cli.h"
#include "tools/tool.h"

enum { HISTORY_LINES = 1000 };

static const char help[] =
"A command goes to the server as it is typed.  Apart from that:\n"
"  COUNT COMMAND  run it so many times\n"
"  clear          clear the screen\n"
"  quit, exit     leave (so do Ctrl-D and Ctrl-C)\n"
"Quotes: \"with \\n \\r \\t \\b \\a \\xHH \\\\ \\\"\" or 'plain, \\' for a "
"quote'.\n"
"Ctrl-C also ends SUBSCRIBE, MONITOR and commands that block.\n";

static void on_interrupt(int signal_number)
{
	cli_interrupted = 1;
}

/* Ctrl-C ends the command, not the program. */
static int run_interruptible(struct cli_session *session,
			     const struct cli_args *args)
{
	struct sigaction action = { .sa_handler = on_interrupt }, before;
	int ret;

	cli_interrupted = 0;
	sigaction(SIGINT, &action, &before);
	ret = cli_session_run(session, args);
	sigaction(SIGINT, &before, NULL);
	if (cli_interrupted)
		putchar('\n');
	cli_interrupted = 0;
	return ret;
}

static int connected_run(struct cli_session *session,
			 const struct cli_args *args, bool interactive)
{
	int ret = cli_session_connect(session);

	if (ret)
		return ret;
	return interactive ? run_interruptible(session, args)
			   : cli_session_run(session, args);
}

/* A number before the command says how often. */
static int run_repeated(struct cli_session *session, struct cli_args *args,
			bool interactive)
{
	struct cli_args command = *args;
	long times = 1;
	char *end;
	int ret = 0;

	if (args->argc > 1) {
		times = strtol(args->argv[0], &end, 10);
		if (args->argv[0][0] && !*end && times > 0) {
			command.argc--;
			command.argv++;
			command.lengths++;
		} else {
			times = 1;
		}
	}
	while (times-- && !ret && !cli_interrupted)
		ret = connected_run(session, &command, interactive);
	return ret;
}

/* 1: leave; 0: go on; negative: the connection was lost. */
static int run_line(struct cli_session *session, const char *line,
		    bool interactive)
{
	struct cli_args args;
	int ret = cli_args_split(&args, line);

	if (ret == -EINVAL) {
		puts("Invalid argument(s)");
		return 0;
	}
	if (ret) {
		fprintf(stderr, "rdmakit redis: out of memory\n");
		return 0;
	}
	if (!args.argc)
		ret = 0;
	else if (!strcasecmp(args.argv[0], "quit") ||
		 !strcasecmp(args.argv[0], "exit"))
		ret = 1;
	else if (interactive && (!strcasecmp(args.argv[0], "help") ||
				 !strcmp(args.argv[0], "?")))
		fputs(help, stdout);
	else if (interactive && !strcasecmp(args.argv[0], "clear"))
		fputs("\033[H\033[2J", stdout);
	else
		ret = run_repeated(session, &args, interactive);
	cli_args_free(&args);
	fflush(stdout);
	return ret;
}

int cli_from_stdin(struct cli_session *session)
{
	char *line = NULL;
	size_t capacity = 0;
	int ret = 0;

	while (!ret && getline(&line, &capacity, stdin) >= 0)
		ret = run_line(session, line, false);
	free(line); /* getline()'s own */
	return ret < 0 || session->failed ? RK_EXIT_FAILED : RK_EXIT_OK;
}

/* "127.0.0.1:6379[2](TX)> " */
static char *prompt(EditLine *edit)
{
	static char text[RK_URI_HOST_MAX + 64];
	const struct cli_session *session;
	const struct rk_uri *uri;
	char db[16] = "";
	void *user = NULL;

	el_get(edit, EL_CLIENTDATA, &user);
	session = user;
	uri = &session->options->uri;
	if (!session->redis)
		return strcpy(text, "not connected> ");
	if (session->db)
		snprintf(db, sizeof(db), "[%u]", session->db);
	if (uri->path[0])
		snprintf(text, sizeof(text), "redis %s%s%s> ", uri->path, db,
			 session->in_transaction ? "(TX)" : "");
	else
		snprintf(text, sizeof(text),
			 strchr(uri->host, ':') ? "[%s]:%u%s%s> "
						: "%s:%u%s%s> ",
			 uri->host, uri->port, db,
			 session->in_transaction ? "(TX)" : "");
	return text;
}

/* Lines with a password are not kept. */
static bool is_secret(const char *line)
{
	static const char *const words[] = { "auth", "requirepass", "masterauth",
					     "setuser", "primaryauth" };

	for (size_t i = 0; i < RK_ARRAY_SIZE(words); i++)
		if (strcasestr(line, words[i]))
			return true;
	return false;
}

static bool history_path(char *out, size_t bytes)
{
	const char *home = getenv("HOME");

	return home && snprintf(out, bytes, "%s/.rdmakit_redis_history",
				home) < (int)bytes;
}

static void read_commands(struct cli_session *session, EditLine *edit,
			  History *lines)
{
	HistEvent event;
	const char *line;
	int count, ret = 0;

	while (ret != 1 && (line = el_gets(edit, &count)) && count > 0) {
		if (line[strspn(line, " \t\n")] && !is_secret(line))
			history(lines, &event, H_ENTER, line);
		cli_session_check(session);
		ret = run_line(session, line, true);
	}
}

int cli_interactive(struct cli_session *session)
{
	char path[PATH_MAX];
	bool keep = history_path(path, sizeof(path));
	EditLine *edit;
	History *lines;
	HistEvent event;

	setlocale(LC_CTYPE, "");
	edit = el_init("rdmakit", stdin, stdout, stderr);
	lines = history_init();
	if (!edit || !lines) {
		fprintf(stderr, "rdmakit redis: cannot set up the terminal\n");
		if (edit)
			el_end(edit);
		return RK_EXIT_FAILED;
	}
	history(lines, &event, H_SETSIZE, HISTORY_LINES);
	history(lines, &event, H_SETUNIQUE, 1);
	if (keep)
		history(lines, &event, H_LOAD, path);
	el_set(edit, EL_CLIENTDATA, session);
	el_set(edit, EL_PROMPT, prompt);
	el_set(edit, EL_EDITOR, "emacs");
	el_set(edit, EL_SIGNAL, 1);
	el_set(edit, EL_HIST, history, lines);
	el_source(edit, NULL);
	read_commands(session, edit, lines);
	if (keep) {
		umask(077);
		history(lines, &event, H_SAVE, path);
	}
	history_end(lines);
	el_end(edit);
	return RK_EXIT_OK;
}
