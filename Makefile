# SPDX-License-Identifier: BSD-2-Clause
#
#   make demo       watch a program's probes fire: list them, attach, print events
#   make test       install what is missing and run all tests
#
#   make setup      install what is missing, and nothing else
#   make generate   compile the BPF objects that are committed
#   make lint       formatting, vet, staticcheck
#   make test-kernels        integration tests on other kernels and machines
#   make bench      measure, beside libbpf, bpftrace, bcc and readelf
#   make fuzz       every fuzz target for FUZZTIME each (default 30s)
#   make clean      remove what was built

SHELL := /bin/bash
GO ?= go
FUZZTIME ?= 30s
TESTFLAGS ?= -timeout 15m
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0

# Packages whose tests attach to programs. They want root, and they run one after
# the other: a semaphore counts the tracers of all of them.
attaching := $(addprefix ./,$(foreach dir,bpf cmd examples internal/testprog proc trace usdt,$(if $(wildcard $(dir)),$(dir)/...)))

# Packages that know no operating system.
pure := ./argspec/... ./elfnote/...

# The modules of this repository, as directories.
modules := $(patsubst %/,%,$(dir $(shell git ls-files go.mod '*/go.mod')))

user := $(shell id -u)
export GO

.PHONY: demo
demo:
	internal/setup/install demo
	$(GO) run ./examples/demo

.PHONY: setup
setup:
	internal/setup/install demo generate test
	internal/setup/libbpf-headers

.PHONY: test
test: setup test-unit test-attach test-race

# As a user without CI, which makes tests fail that lack a privilege.
.PHONY: test-unit
test-unit:
ifeq ($(user),0)
	$(GO) test $(TESTFLAGS) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(attaching))")
	cd bench && $(GO) test $(TESTFLAGS) ./...
	cd kernels && $(GO) test $(TESTFLAGS) ./...
else
	env -u CI $(GO) test $(TESTFLAGS) ./...
endif
ifeq ($(shell $(GO) env GOOS GOARCH | tr '\n' /),linux/amd64/)
	# an int of 32 bits, which lengths in a file overflow
	GOARCH=386 CGO_ENABLED=0 $(GO) test $(TESTFLAGS) $(pure)
endif

.PHONY: test-attach
test-attach:
	internal/setup/go-test-as-root -count=1 -p 1 $(TESTFLAGS) $(attaching)

# Tests with Concurrent or Race in their name, under the race detector.
racing = $(sort $(dir $(shell grep -rlE --include='*_test.go' '^func Test\w*(Concurrent|Race)' .)))
.PHONY: test-race
test-race:
	CGO_ENABLED=1 internal/setup/go-test-as-root -race -count=1 -p 1 $(TESTFLAGS) -run 'Concurrent|Race' $(racing)

.PHONY: generate
generate:
	internal/setup/install demo generate
	$(GO) generate ./...

.PHONY: lint
lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')) && \
		if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted" >&2; exit 1; fi
	set -e; for module in $(modules); do \
		(cd $$module && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...); \
	done
	# what is not for Linux alone, or for 64 bits alone
	GOOS=darwin $(GO) vet $(pure) ./cmd/usdtlist/...
	GOOS=darwin $(GO) build ./...
	GOARCH=386 $(GO) vet ./...

# go test fuzzes one target at a time.
.PHONY: fuzz
fuzz:
	@set -e; for package in $$($(GO) list ./...); do \
		targets=$$($(GO) test -list '^Fuzz' $$package); \
		for target in $$targets; do \
			case $$target in Fuzz*) \
				echo "$$package $$target"; \
				$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -parallel 1 $$package;; \
			esac; \
		done; \
	done

.PHONY: clean
clean:
	$(MAKE) -C testdata clean
	$(GO) clean -testcache

# Measures this module and its peers, as root, and rewrites docs/performance.md.
.PHONY: bench
bench:
	$(MAKE) -C bench

include kernels.mk
