/* SPDX-License-Identifier: BSD-3-Clause */
/* See redis_cli.h. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "redis/client/buffer.h"
#include "tools/redis_cli.h"

int cli_args_add(struct cli_args *args, const char *text, size_t bytes)
{
	size_t count = (size_t)args->argc;
	char **argv = rk_realloc(args->argv, (count + 1) * sizeof(*argv));
	size_t *lengths;
	char *copy;

	if (!argv)
		return -ENOMEM;
	args->argv = argv;
	lengths = rk_realloc(args->lengths, (count + 1) * sizeof(*lengths));
	if (!lengths)
		return -ENOMEM;
	args->lengths = lengths;
	copy = rk_zalloc(bytes + 1);
	if (!copy)
		return -ENOMEM;
	if (bytes)
		memcpy(copy, text, bytes);
	argv[count] = copy;
	lengths[count] = bytes;
	args->argc++;
	return 0;
}

void cli_args_free(struct cli_args *args)
{
	for (int i = 0; i < args->argc; i++)
		rk_free(args->argv[i]);
	rk_free(args->argv);
	rk_free(args->lengths);
	*args = (struct cli_args){ 0 };
}

static int hex_digit(char c)
{
	if (isdigit((unsigned char)c))
		return c - '0';
	return tolower((unsigned char)c) - 'a' + 10;
}

/* What stands after a backslash in "..."; returns the bytes it took. */
static size_t unescape(const char *at, char *out)
{
	static const char names[] = "nrtba", values[] = "\n\r\t\b\a";
	const char *found;

	if (at[0] == 'x' && isxdigit((unsigned char)at[1]) &&
	    isxdigit((unsigned char)at[2])) {
		*out = (char)(hex_digit(at[1]) * 16 + hex_digit(at[2]));
		return 3;
	}
	found = strchr(names, at[0]);
	*out = found ? values[found - names] : at[0];
	return 1;
}

/* The inside of a quoted part; *line is moved behind its closing quote. */
static int take_quoted(const char **line, char quote, struct rk_buffer *word)
{
	const char *at = *line;
	char c;
	int ret;

	while (*at != quote) {
		if (!*at)
			return -EINVAL;
		c = *at++;
		if (c == '\\' && quote == '"' && *at) {
			at += unescape(at, &c);
		} else if (c == '\\' && quote == '\'' && *at == '\'') {
			c = *at++;
		}
		ret = rk_buffer_append(word, &c, 1);
		if (ret)
			return ret;
	}
	at++;
	if (*at && !isspace((unsigned char)*at))
		return -EINVAL;
	*line = at;
	return 0;
}

static int take_word(const char **line, struct rk_buffer *word)
{
	int ret = 0;

	while (!ret && **line && !isspace((unsigned char)**line)) {
		char c = *(*line)++;

		if (c == '"' || c == '\'')
			ret = take_quoted(line, c, word);
		else
			ret = rk_buffer_append(word, &c, 1);
	}
	return ret;
}

int cli_args_split(struct cli_args *out, const char *line)
{
	struct rk_buffer word = { 0 };
	int ret = 0;

	*out = (struct cli_args){ 0 };
	for (;;) {
		while (isspace((unsigned char)*line))
			line++;
		if (!*line)
			break;
		ret = take_word(&line, &word);
		if (!ret)
			ret = cli_args_add(out, rk_buffer_head(&word),
					   rk_buffer_bytes(&word));
		rk_buffer_consume(&word, rk_buffer_bytes(&word));
		if (ret) {
			cli_args_free(out);
			break;
		}
	}
	rk_buffer_free(&word);
	return ret;
}
