/* SPDX-License-Identifier: BSD-3-Clause */
/* See wire_format.h. */
#include "stream/wire_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int check_memory(const struct wire_memory *m, struct wire_message *out,
			char words[WIRE_WORDS_BYTES])
{
	out->address = wire_get64(m->address);
	out->length = wire_get32(m->length);
	out->key = wire_get32(m->key);
	if (out->length == 0 || out->length > WIRE_WINDOW_BYTES_MAX) {
		snprintf(words, WIRE_WORDS_BYTES,
			 "the peer announced a window of %" PRIu32
			 " bytes; 1 to %d are possible",
			 out->length, WIRE_WINDOW_BYTES_MAX);
		return -EPROTO;
	}
	if (out->address > UINT64_MAX - out->length) {
		snprintf(words, WIRE_WORDS_BYTES,
			 "the peer announced a window of %" PRIu32
			 " bytes at 0x%" PRIx64 ", past the end of memory",
			 out->length, out->address);
		return -EPROTO;
	}
	return 0;
}

int wire_check_control(const void *message, uint32_t bytes,
		       struct wire_message *out, char words[WIRE_WORDS_BYTES])
{
	union wire_control c;
	unsigned opcode;

	memset(out, 0, sizeof(*out));
	if (bytes != WIRE_CONTROL_BYTES) {
		snprintf(words, WIRE_WORDS_BYTES,
			 "the peer sent a control message of %" PRIu32
			 " bytes; it must have %d",
			 bytes, WIRE_CONTROL_BYTES);
		return -EPROTO;
	}
	memcpy(&c, message, sizeof(c));
	opcode = wire_get16(c.opcode);
	if (opcode > WIRE_REGISTER_XFER_MEMORY) {
		snprintf(words, WIRE_WORDS_BYTES,
			 "the peer sent a control message with the unknown "
			 "opcode %u",
			 opcode);
		return -EPROTO;
	}
	out->opcode = (enum wire_opcode)opcode;
	switch (out->opcode) {
	case WIRE_GET_SERVER_FEATURE:
	case WIRE_SET_CLIENT_FEATURE:
		out->select = wire_get16(c.feature.select);
		out->features = wire_get64(c.feature.features);
		return 0;
	case WIRE_KEEPALIVE:
		return 0;
	case WIRE_REGISTER_XFER_MEMORY:
		return check_memory(&c.memory, out, words);
	}
	return -EPROTO;
}

int wire_check_immediate(uint32_t immediate, uint32_t room_bytes,
			 char words[WIRE_WORDS_BYTES])
{
	if (immediate <= room_bytes)
		return 0;
	snprintf(words, WIRE_WORDS_BYTES,
		 "the peer says it wrote %" PRIu32
		 " bytes into a window with room for %" PRIu32,
		 immediate, room_bytes);
	return -EPROTO;
}

void wire_make_feature(union wire_control *out, uint16_t select,
		       uint64_t features)
{
	memset(out, 0, sizeof(*out));
	out->feature.opcode = wire_put16(WIRE_GET_SERVER_FEATURE);
	out->feature.select = wire_put16(select);
	out->feature.features = wire_put64(features);
}

void wire_make_keepalive(union wire_control *out)
{
	memset(out, 0, sizeof(*out));
	out->keepalive.opcode = wire_put16(WIRE_KEEPALIVE);
}

void wire_make_memory(union wire_control *out, uint64_t address,
		      uint32_t length, uint32_t key)
{
	memset(out, 0, sizeof(*out));
	out->memory.opcode = wire_put16(WIRE_REGISTER_XFER_MEMORY);
	out->memory.address = wire_put64(address);
	out->memory.length = wire_put32(length);
	out->memory.key = wire_put32(key);
}
