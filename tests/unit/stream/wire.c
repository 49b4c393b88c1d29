/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages byte by byte, as Valkey 9.1 and its client sent them (captured
 * from Soft-RoCE), and every check of what a peer says.
 */
#include <errno.h>
#include <string.h>

#include "ok.h"
#include "stream/wire_format.h"

/* RegisterXferMemory of the client, and of the server */
static const uint8_t client_memory[32] = {
	0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0x00, 0x00, 0x7f, 0xff, 0xf7, 0x4a, 0x1b, 0xc0,
	0x00, 0x10, 0x00, 0x00, 0x00, 0x06, 0x0a, 0x3f,
};
static const uint8_t server_memory[32] = {
	0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0x00, 0x00, 0x7f, 0xff, 0xf3, 0xf0, 0x90, 0x00,
	0x00, 0x10, 0x00, 0x00, 0x00, 0x06, 0x09, 0x6e,
};

static char words[WIRE_WORDS_BYTES];

static void memory_is_made_as_captured(void)
{
	union wire_control c;

	memset(&c, 0xff, sizeof(c));
	wire_make_memory(&c, 0x7ffff74a1bc0, 1048576, 0x60a3f);
	ok(!memcmp(&c, client_memory, 32), "the client's bytes");
	wire_make_memory(&c, 0x7ffff3f09000, 1048576, 0x6096e);
	ok(!memcmp(&c, server_memory, 32), "the server's bytes");
}

static void memory_is_read_as_captured(void)
{
	struct wire_message m;
	uint8_t unaligned[33];

	memcpy(unaligned + 1, server_memory, 32);
	ok(!wire_check_control(unaligned + 1, 32, &m, words), "it is taken");
	ok(m.opcode == WIRE_REGISTER_XFER_MEMORY &&
		   m.address == 0x7ffff3f09000 && m.length == 1048576 &&
		   m.key == 0x6096e,
	   "address, length and key");
	memset(unaligned + 3, 0xff, 14);
	ok(!wire_check_control(unaligned + 1, 32, &m, words) &&
		   m.length == 1048576,
	   "reserved bytes are not looked at");
}

static void other_messages(void)
{
	static const uint8_t keepalive[32] = { 0, 2 };
	static const uint8_t feature[32] = {
		0,    0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0,    0, 0,    0,    0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
	};
	struct wire_message m;
	union wire_control c;

	memset(&c, 0xff, sizeof(c));
	wire_make_keepalive(&c);
	ok(!memcmp(&c, keepalive, 32), "a keepalive");
	ok(!wire_check_control(&c, 32, &m, words) &&
		   m.opcode == WIRE_KEEPALIVE,
	   "is read as one");
	memset(&c, 0xff, sizeof(c));
	wire_make_feature(&c, 0x1234, 0x0102030405060708);
	ok(!memcmp(&c, feature, 32), "features");
	ok(!wire_check_control(&c, 32, &m, words) &&
		   m.opcode == WIRE_GET_SERVER_FEATURE && m.select == 0x1234 &&
		   m.features == 0x0102030405060708,
	   "are read back");
	c.bytes[1] = 1;
	ok(!wire_check_control(&c, 32, &m, words) &&
		   m.opcode == WIRE_SET_CLIENT_FEATURE,
	   "a client's features");
}

static void sizes_are_checked(void)
{
	static const uint32_t sizes[] = { 0, 1, 31, 33, 64, UINT32_MAX };
	uint8_t message[64] = { 0, 2 };
	struct wire_message m;

	for (unsigned i = 0; i < RK_ARRAY_SIZE(sizes); i++) {
		char value[16];

		words[0] = '\0';
		snprintf(value, sizeof(value), "%u ", sizes[i]);
		ok(wire_check_control(message, sizes[i], &m, words) ==
				   -EPROTO &&
			   strstr(words, value),
		   "%s", words);
	}
}

static void opcodes_are_checked(void)
{
	uint8_t message[32] = { 0 };
	struct wire_message m;
	unsigned taken = 0;

	message[26] = 1; /* a length that is fine */
	for (unsigned opcode = 0; opcode <= 0xffff; opcode++) {
		message[0] = (uint8_t)(opcode >> 8);
		message[1] = (uint8_t)opcode;
		taken += !wire_check_control(message, 32, &m, words);
	}
	ok(taken == 4, "of 65536 opcodes 4 are known");
	ok(strstr(words, "65535"), "%s", words);
}

static int announce(uint64_t address, uint32_t length)
{
	struct wire_message m;
	union wire_control c;

	words[0] = '\0';
	wire_make_memory(&c, address, length, 1);
	return wire_check_control(&c, 32, &m, words);
}

static void windows_are_checked(void)
{
	const uint32_t gib = 1 << 30;

	ok(announce(4096, 0) == -EPROTO, "%s", words);
	ok(announce(4096, 1) == 0, "a window of 1 byte");
	ok(announce(4096, gib) == 0, "a window of 1 GiB");
	ok(announce(4096, gib + 1) == -EPROTO, "%s", words);
	ok(announce(4096, UINT32_MAX) == -EPROTO, "%s", words);
	ok(announce(UINT64_MAX, 1) == -EPROTO, "%s", words);
	ok(announce(UINT64_MAX - 4096, 4096) == 0, "up to the end of memory");
	ok(announce(UINT64_MAX - 4095, 4096) == -EPROTO, "%s", words);
	ok(announce(0, 4096) == 0, "at address 0 (keys may be zero based)");
}

static void immediates_are_checked(void)
{
	ok(!wire_check_immediate(0, 0, words), "nothing fits always");
	ok(!wire_check_immediate(7, 7, words), "to the last byte");
	ok(wire_check_immediate(8, 7, words) == -EPROTO, "%s", words);
	ok(wire_check_immediate(1, 0, words) == -EPROTO, "%s", words);
	ok(wire_check_immediate(UINT32_MAX, 1048576, words) == -EPROTO, "%s",
	   words);
	ok(wire_check_immediate(UINT32_MAX, UINT32_MAX - 1, words) == -EPROTO,
	   "%s", words);
}

int main(void)
{
	memory_is_made_as_captured();
	memory_is_read_as_captured();
	other_messages();
	sizes_are_checked();
	opcodes_are_checked();
	windows_are_checked();
	immediates_are_checked();
	return ok_done();
}
