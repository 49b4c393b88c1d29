/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a connection ended, as a number and in words.  Pure functions.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "stream/internal.h"

/* Of enum ibv_wc_status, those that say something about the peer. */
static const char *completion_words(int status)
{
	switch (status) {
	case 0:
		return "the peer is gone";
	case 5:
		return "the connection was cut with work outstanding";
	case 10:
		return "the peer's window is not, or no longer, ours to write";
	case 11:
		return "the peer's device failed to take what was sent";
	case 12:
		return "the peer does not answer (transport retries used up)";
	case 13:
		return "the peer had no receive posted (RNR retries used up)";
	}
	return "a work request failed";
}

/* A negative status is an errno. */
int stream_close_error(enum rk_close_reason reason, int status)
{
	switch (reason) {
	case RK_CLOSE_LOCAL:
	case RK_CLOSE_PEER:
		return 0;
	case RK_CLOSE_REJECTED:
		return -ECONNREFUSED;
	case RK_CLOSE_UNREACHABLE:
		return status < 0 ? status : -EHOSTUNREACH;
	case RK_CLOSE_ERROR:
		return status == 12 ? -ETIMEDOUT : -ECONNRESET;
	}
	return -EIO;
}

void stream_close_words(enum rk_close_reason reason, int status,
			char words[WIRE_WORDS_BYTES])
{
	switch (reason) {
	case RK_CLOSE_LOCAL:
	case RK_CLOSE_PEER:
		snprintf(words, WIRE_WORDS_BYTES,
			 "the peer closed the connection");
		return;
	case RK_CLOSE_REJECTED:
		snprintf(words, WIRE_WORDS_BYTES,
			 "the peer refused the connection (reason %d%s)", status,
			 status == 8 ? ": nothing listens there" : "");
		return;
	case RK_CLOSE_UNREACHABLE:
		snprintf(words, WIRE_WORDS_BYTES,
			 "no answer to the connect request: %s",
			 status < 0 ? strerror(-status) :
				      "no route, or nobody there");
		return;
	case RK_CLOSE_ERROR:
		snprintf(words, WIRE_WORDS_BYTES,
			 "the connection broke: %s (status %d)",
			 completion_words(status), status);
		return;
	}
}
