/* SPDX-License-Identifier: BSD-3-Clause */
/* See uri.h. */
#include "redis/client/uri.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A piece of the text that was given. */
struct piece {
	const char *text;
	size_t bytes;
};

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Copy a piece, with %XX decoded.  NULL, or what is wrong. */
static const char *decode(struct piece from, char *to, size_t to_bytes)
{
	size_t used = 0;

	for (size_t i = 0; i < from.bytes; i++) {
		char c = from.text[i];

		if (c == '%') {
			int high = -1, low = -1;

			if (from.bytes - i > 2) {
				high = hex_value(from.text[i + 1]);
				low = hex_value(from.text[i + 2]);
			}
			if (high < 0 || low < 0)
				return "has a '%' that no two hexadecimal "
				       "digits follow";
			c = (char)(high * 16 + low);
			i += 2;
		}
		if (!c)
			return "has a zero byte";
		if (used + 1 >= to_bytes)
			return "is too long";
		to[used++] = c;
	}
	to[used] = '\0';
	return NULL;
}

/* All of the piece is a number from 0 to max. */
static bool number(struct piece from, unsigned long max, unsigned long *out)
{
	char digits[12];
	char *end;

	if (!from.bytes || from.bytes >= sizeof(digits) ||
	    !isdigit((unsigned char)from.text[0]))
		return false;
	memcpy(digits, from.text, from.bytes);
	digits[from.bytes] = '\0';
	*out = strtoul(digits, &end, 10);
	return !*end && *out <= max;
}

/* Split at the first byte of set; the rest begins with that byte. */
static struct piece split(struct piece *rest, const char *set)
{
	struct piece head = { rest->text, strcspn(rest->text, set) };

	head.bytes = rk_min(head.bytes, rest->bytes);
	rest->text += head.bytes;
	rest->bytes -= head.bytes;
	return head;
}

static const char *parse_db(struct rk_uri *uri, struct piece text)
{
	unsigned long db;

	if (!number(text, INT_MAX, &db))
		return "has a database that is not a number";
	uri->db = (unsigned)db;
	return NULL;
}

static const char *parse_login(struct rk_uri *uri, struct piece login)
{
	struct piece user = split(&login, ":");
	const char *wrong = NULL;

	if (!login.bytes)
		return "has a user without a password; write USER:PASSWORD@";
	login.text++;
	login.bytes--;
	wrong = decode(user, uri->user, sizeof(uri->user));
	if (!wrong)
		wrong = decode(login, uri->password, sizeof(uri->password));
	return wrong;
}

static const char *parse_host(struct rk_uri *uri, struct piece text)
{
	struct piece host;
	unsigned long port = RK_REDIS_PORT;
	const char *wrong;

	if (text.bytes && text.text[0] == '[') {
		text.text++;
		text.bytes--;
		host = split(&text, "]");
		if (!text.bytes)
			return "has a '[' without a ']'";
		text.text++;
		text.bytes--;
	} else {
		host = split(&text, ":");
	}
	if (!host.bytes)
		return "names no host";
	wrong = decode(host, uri->host, sizeof(uri->host));
	if (wrong)
		return wrong;
	if (text.bytes) {
		struct piece digits = { text.text + 1, text.bytes - 1 };

		if (text.text[0] != ':' || !number(digits, 65535, &port) ||
		    !port)
			return "has a port that is not a number from 1 to "
			       "65535";
	}
	uri->port = (uint16_t)port;
	return NULL;
}

/* "?db=3&device=soft" */
static const char *parse_options(struct rk_uri *uri, struct piece rest)
{
	const char *wrong = NULL;

	while (rest.bytes && !wrong) {
		struct piece value, key;

		rest.text++; /* '?' or '&' */
		rest.bytes--;
		value = split(&rest, "&");
		key = split(&value, "=");
		if (!value.bytes)
			return "has an option without a value";
		value.text++;
		value.bytes--;
		if (key.bytes == 2 && !memcmp(key.text, "db", 2))
			wrong = parse_db(uri, value);
		else if (key.bytes == 6 && !memcmp(key.text, "device", 6))
			wrong = decode(value, uri->device,
				       sizeof(uri->device));
		else
			wrong = "has an option that is neither db nor device";
	}
	return wrong;
}

static const char *parse_authority(struct rk_uri *uri, struct piece text)
{
	const char *at = memrchr(text.text, '@', text.bytes);
	const char *wrong = NULL;
	bool local = !strcmp(uri->scheme, "unix");

	if (at) {
		struct piece login = { text.text, (size_t)(at - text.text) };

		wrong = parse_login(uri, login);
		text.bytes -= login.bytes + 1;
		text.text = at + 1;
	}
	if (wrong)
		return wrong;
	if (!local)
		return parse_host(uri, text);
	return text.bytes ? "names a host; write unix:///PATH" : NULL;
}

static const char *parse(struct rk_uri *uri, struct piece rest)
{
	struct piece authority, path;
	const char *wrong;

	authority = split(&rest, "/?");
	path = split(&rest, "?");
	wrong = parse_authority(uri, authority);
	if (wrong)
		return wrong;
	if (!strcmp(uri->scheme, "unix")) {
		if (path.bytes < 2)
			return "names no socket; write unix:///PATH";
		wrong = decode(path, uri->path, sizeof(uri->path));
	} else if (path.bytes > 1) {
		path.text++;
		path.bytes--;
		wrong = parse_db(uri, path);
	}
	return wrong ? wrong : parse_options(uri, rest);
}

static int parse_scheme(struct rk_uri *uri, struct piece *rest)
{
	struct piece scheme = split(rest, ":");

	if (!scheme.bytes || scheme.bytes >= sizeof(uri->scheme) ||
	    rest->bytes < 3 || memcmp(rest->text, "://", 3) != 0)
		return -EINVAL;
	for (size_t i = 0; i < scheme.bytes; i++)
		uri->scheme[i] = (char)tolower((unsigned char)scheme.text[i]);
	if (!strcmp(uri->scheme, "redis") || !strcmp(uri->scheme, "valkey")) {
		memset(uri->scheme, 0, sizeof(uri->scheme));
		strcpy(uri->scheme, "tcp");
	}
	rest->text += 3;
	rest->bytes -= 3;
	return 0;
}

int rk_uri_parse(struct rk_uri *out, const char *text, char *error,
		 size_t error_bytes)
{
	struct piece rest = { text, strlen(text) };
	const char *wrong;

	*out = (struct rk_uri){ .port = RK_REDIS_PORT };
	if (parse_scheme(out, &rest)) {
		snprintf(error, error_bytes,
			 "'%.60s' is no URI; write rdma://HOST[:PORT], "
			 "tcp://HOST[:PORT] or unix:///PATH",
			 text);
		return -EINVAL;
	}
	wrong = parse(out, rest);
	if (wrong) {
		/* Not the text: it may hold a password. */
		snprintf(error, error_bytes, "the %s:// URI %s", out->scheme,
			 wrong);
		return -EINVAL;
	}
	return 0;
}

void rk_uri_text(const struct rk_uri *uri, char *out, size_t out_bytes)
{
	bool six = strchr(uri->host, ':');

	if (uri->path[0])
		snprintf(out, out_bytes, "%s://%s", uri->scheme, uri->path);
	else
		snprintf(out, out_bytes, "%s://%s%s%s:%u", uri->scheme,
			 six ? "[" : "", uri->host, six ? "]" : "", uri->port);
}

/* Append text with all but plain letters as %XX; at most what fits. */
static void encode(const char *text, const char *plain, char *out,
		   size_t out_bytes)
{
	size_t used = strlen(out);

	for (; *text && used + 4 <= out_bytes; text++) {
		if (isalnum((unsigned char)*text) || strchr(plain, *text))
			used += (size_t)snprintf(out + used, 2, "%c", *text);
		else
			used += (size_t)snprintf(out + used, 4, "%%%02X",
						 (unsigned char)*text);
	}
}

static RK_PRINTF(3, 4) void append(char *out, size_t out_bytes,
				   const char *format, ...)
{
	size_t used = strlen(out);
	va_list args;

	va_start(args, format);
	vsnprintf(out + used, out_bytes - used, format, args);
	va_end(args);
}

void rk_uri_compose(const struct rk_uri *uri, char *out, size_t out_bytes)
{
	bool six = strchr(uri->host, ':');

	snprintf(out, out_bytes, "%s://", uri->scheme);
	if (uri->password[0]) {
		encode(uri->user, "-._", out, out_bytes);
		append(out, out_bytes, ":");
		encode(uri->password, "-._", out, out_bytes);
		append(out, out_bytes, "@");
	}
	if (uri->path[0]) {
		encode(uri->path, "/-._", out, out_bytes);
	} else {
		append(out, out_bytes, "%s", six ? "[" : "");
		encode(uri->host, ":-._", out, out_bytes);
		append(out, out_bytes, "%s:%u", six ? "]" : "", uri->port);
	}
	append(out, out_bytes, "?db=%u", uri->db);
	if (uri->device[0]) {
		append(out, out_bytes, "&device=");
		encode(uri->device, "-._", out, out_bytes);
	}
}
