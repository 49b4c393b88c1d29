# SPDX-License-Identifier: BSD-3-Clause
# A short front for Meson; `make help` lists the targets.

BUILD ?= build
ASAN_BUILD ?= build-asan
PREFIX ?= /usr/local

.PHONY: all check demo asan install deps clean help figures

all: $(BUILD)/build.ninja ## build everything into $(BUILD)
	@ninja -C $(BUILD)

$(BUILD)/build.ninja: | deps
	meson setup $(BUILD) --prefix=$(PREFIX) --buildtype=release

deps: ## install the Debian packages that building and testing need
	@scripts/install-deps

check: all ## every test that needs no hardware
	@scripts/check $(BUILD)

asan: | deps ## the suite under AddressSanitizer and UBSan
	@test -d $(ASAN_BUILD) || meson setup $(ASAN_BUILD) --buildtype=debugoptimized \
		-Db_sanitize=address,undefined -Db_lundef=false
	@ninja -C $(ASAN_BUILD)
	@scripts/check $(ASAN_BUILD)

demo: all ## a stock redis-server over RDMA on this machine
	@scripts/demo $(BUILD)

figures: all ## the measured figures of doc/performance.md, one run
	@scripts/figures $(BUILD)

install: all ## install programs, module, library and headers
	@meson install -C $(BUILD)

clean: ## remove what was built
	rm -rf $(BUILD) $(ASAN_BUILD)

help:
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
