# SPDX-License-Identifier: BSD-2-Clause
#
#   make demo       watch a program's probes fire: list them, attach, print events
#   make test       install what is missing and run the tests of the library and
#                   the commands that need no more than common packages; says
#                   what was skipped, and why
#   make test-all   the tests of all modules, with PostgreSQL, Java and compilers
#                   for other machines; those of the library and the commands
#                   under the race detector; fails if a test is skipped that
#                   could run here. It is test-attaching and test-computing
#   make nightly    what takes too long for each change: everything under the race
#                   detector, all kernels, all faults, and what is below in full
#
#   make setup      install what test-all needs, and nothing else
#   make generate   compile the BPF objects that are committed
#   make renderer   bundle the flame graph's JavaScript; needs npm
#   make api        list the exported identifiers, and what packages depend on, in api
#   make lint       formatting, vet, staticcheck, the rules of this repository
#   make test-kernels        integration tests on other kernels and machines
#   make bench      measure, beside libbpf, bpftrace, bcc and readelf
#   make test-race  all tests of all modules under the race detector
#   make test-faults         every system call fails once, in every mode
#   make test-soak           attaches and detaches for long, with many at a time
#   make test-exact          compares counts and models for EXACT minutes (default 60)
#   make test-hostile        what users of the host may try, with what it costs
#   make test-hostile-kernels     the same on some other kernels, emulated
#   make fuzz       every fuzz target for FUZZTIME each (default 30s)
#   make transcripts         runs the commands in README.md and docs, as root
#   make docs       write anew what the documentation has from elsewhere: the
#                   reference of the commands, code; make lint compares it
#   make figures    the numbers in docs/figures.md, beside the software's own, as
#                   root
#   make pictures   the pictures in README.md, as root; needs Chromium and tmux
#   make site       the documentation as a site, into dist-site
#   make release-snapshot    archives and packages of all machines, into dist
#   make release-dry-run VERSION=v0.1.0      all of a release but its publication
#   make otelcol    a Collector with the receiver, as otelcol/build/otelcol-usdt
#   make test-releases       PostgreSQL 17 and 18, with the tests of the system's
#   make test-selftest       Linux' own test of libbpf's side, with this module in
#                   libbpf's place
#   make test-otelcol        runs it with PostgreSQL and Prometheus
#   make test-profiler-newest  the profiler's tests with the newest OpenTelemetry
#                   eBPF profiler
#   make metadata   what the Collector's mdatagen makes of the receiver's
#                   metadata.yaml
#   make clean      remove what was built

SHELL := /bin/bash
GO ?= go
# sudo has a PATH of its own: Go is looked for where its archive and packages
# have it, too.
export PATH := $(PATH):/usr/local/go/bin:/usr/lib/go/bin:/snap/bin
override GO := $(or $(shell PATH='$(PATH)' command -v $(GO)),$(GO))
FUZZTIME ?= 30s
TESTFLAGS ?= -timeout 20m
# those with tests of what users of the host may try
HOSTILE_PACKAGES := ./usdt ./trace ./stack ./internal/debuginfod
# empty on machines that have no race detector
RACE ?= -race
# Under it a process waits for a second when it ends, and tests start many.
export GORACE ?= atexit_sleep_ms=10
# of make test: empty, or -race
race :=
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0

# Packages that know no operating system.
pure := ./argspec/... ./elfnote/... ./internal/elffile/... ./usdt/internal/sitespec

# The modules of this repository, as directories.
modules := $(patsubst %/,%,$(dir $(shell git ls-files go.mod '*/go.mod')))

# Those of the library and the commands below the root's, and the packages of all.
nested := internal/language stack sdt cmd
all := ./... $(nested:%=./%/...)
inmodules := internal/setup/inmodules . $(GO)
list = $(patsubst $(shell $(GO) list -m)/%,./%,$(shell $(inmodules) list $1))

tool := $(GO) -C tools run
export GO

# Without root or sudo, it ends with a list of the probes and what is missing.
.PHONY: demo
demo: program = build/$(shell $(GO) env GOARCH 2>/dev/null)/demo
demo:
	internal/setup/install demo
	@$(MAKE) -s -C internal/testdata ARCH=$$($(GO) env GOARCH) $(program)
	@echo "building usdtlist and usdttrace: a minute of processor time, the first time"
	@$(GO) -C cmd build -o ../internal/testdata/build/ ./usdtlist ./usdttrace
	internal/testdata/build/usdtlist -v internal/testdata/$(program)
	@echo "internal/testdata/build/usdttrace --str 0 'gousdt_demo:*' -- internal/testdata/$(program)"
	@# The program ends with its input, with a terminal and without one.
	@root=; [ "$$(id -u)" -eq 0 ] || ! sudo true || root=sudo; \
		sleep 3 | $$root internal/testdata/build/usdttrace --str 0 'gousdt_demo:*' -- internal/testdata/$(program)

# Several packages attach to the same programs, and a semaphore counts the
# tracers of all: those that use the traced programs come one after the other,
# but for the first of these, which attach nothing, and the others, which attach
# to copies. Attaching waits for the kernel most of the time.
test := CGO_ENABLED=1 internal/setup/gotest
reading := ./argspec ./cmd/usdtlist ./internal/commandline \
	./internal/defs ./trace/internal/bpfgen ./internal/testbpf
copying := ./cmd/usdttrace ./trace
attaching = $(filter-out $(reading),./internal/testprog $(call list,-f \
	'{{$$path := .ImportPath}}{{range .TestImports}}{{$$path}} {{.}}{{"\n"}}{{end}}{{range .XTestImports}}{{$$path}} {{.}}{{"\n"}}{{end}}' \
	$(all) | sed -n 's|\(.*\) .*/internal/testprog$$|\1|p' | sort -u))

.PHONY: test
test:
	internal/setup/install demo generate test
	CI= $(MAKE) --no-print-directory test-root

# The profiler's tests want it, and not every system has mounted it.
.PHONY: tracefs
tracefs:
	@[ -e /sys/kernel/tracing/available_events ] || { root=; [ "$$(id -u)" -eq 0 ] || root=sudo; \
		$$root mount -t tracefs tracefs /sys/kernel/tracing; }

# How many attaching packages at once. In test-all it is one: lint runs beside it.
lanes := 2

# With a race detector, those that start goroutines run under it: all that attach,
# whose traced programs do so, and others with such a statement.
threaded = $(patsubst %/,%,$(sort $(dir \
	$(shell grep -rlE --include='*.go' '^[[:space:]]+go [a-z]|\.Go[^a-z ]' .))))

.PHONY: test-root
test-root: others = $(filter-out $(attaching),$(call list,$(all)))
test-root:
	@failed=0; $(test) . -count=1 $(TESTFLAGS) $(filter-out $(if $(race),$(threaded)),$(others)) || failed=1; \
		$(if $(race),$(test) . $(race) -count=1 $(TESTFLAGS) $(filter $(threaded),$(others)) || failed=1;) \
		$(MAKE) --no-print-directory -k -j$(lanes) test-originals test-copies || failed=1; \
		exit $$failed

.PHONY: test-originals test-copies
test-originals:
	$(test) . $(race) -count=1 -p 1 $(TESTFLAGS) $(filter-out $(copying),$(attaching))
test-copies:
	$(test) . $(race) -count=1 -p 1 $(TESTFLAGS) $(copying)

.PHONY: setup setup-root
setup: setup-root
	internal/setup/interpreter ruby profiler/testdata/build/ruby
setup-root:
	internal/setup/install demo generate test test-all
	internal/setup/newest-packages
	internal/setup/newest-peers docs/recipes/build/peers
	internal/setup/releases docs/recipes/build/releases
	internal/setup/debug-packages docs/recipes/build/debug
	internal/setup/interpreter tcl docs/recipes/build/tcl

# All tests of all modules, once: of this one under the race detector, of others
# in make test-race. In .ci/run those that attach nothing run beside the others,
# which wait for the kernel.
computing := tools/bench tools/bench/coverage tools
.PHONY: test-all test-attaching test-computing
test-all: test-attaching test-computing
test-attaching test-computing: export CI := true
test-attaching: setup-root
	$(MAKE) --no-print-directory test-root lanes=1 race=$(RACE)
	$(MAKE) --no-print-directory tracefs
	internal/setup/interpreter ruby profiler/testdata/build/ruby
	set -e; for module in $(filter-out . $(nested) $(computing),$(modules)); do \
		$(test) $$module -count=1 -p 1 $(TESTFLAGS) ./...; \
	done
test-computing:
	set -e; for module in $(computing); do $(test) $$module -count=1 $(TESTFLAGS) ./...; done
	$(MAKE) --no-print-directory test-narrow

# The tests of usdttrace with the PostgreSQL of newer releases, as root. Whole, so
# that no test is left out for its name.
.PHONY: test-releases
test-releases:
	internal/setup/releases docs/recipes/build/releases
	set -e; for release in $(CURDIR)/docs/recipes/build/releases/*/; do \
		GOUSDT_RELEASE=$${release%/} $(test) cmd -count=1 -timeout 40m ./usdttrace; \
	done

# As root, on x86-64.
.PHONY: test-selftest
test-selftest: export CI := true
test-selftest:
	internal/setup/install test-selftest
	internal/setup/newest-packages
	internal/setup/kernel-selftest internal/testdata/build/selftest
	$(test) . -count=1 -tags selftest ./usdt/libbpf

# An int of 32 bits, which lengths in a file overflow.
.PHONY: test-narrow
test-narrow:
ifeq ($(shell $(GO) env GOOS GOARCH 2>/dev/null | tr '\n' /),linux/amd64/)
	GOARCH=386 CGO_ENABLED=0 $(GO) test $(TESTFLAGS) $(pure) ./trace
endif

.PHONY: test-race
test-race: export CI := true
test-race: setup tracefs
	set -e; for module in $(modules); do \
		$(test) $$module $(RACE) -count=1 -p 1 -timeout 40m ./...; \
	done

# As root. On CI's machines these are several jobs: .github/workflows/nightly.yml.
.PHONY: nightly
nightly:
	set -e; for goal in test-race test-faults test-soak test-hostile transcripts \
		test-releases test-selftest test-otelcol test-profiler-newest bench-smoke test-kernels fuzz; do \
		$(MAKE) --no-print-directory $$goal; \
	done

# As root. Whole packages, so that no test is left out for its name. The tests
# of make test-all have a few calls of each kind fail; here all do.
.PHONY: test-faults
test-faults:
	GOUSDT_ALL_FAULTS=1 CI=true internal/setup/gotest . -count=1 -p 1 -timeout 60m ./usdt ./trace ./cmd/usdttrace

# As root, under the race detector. The same tests are short in make test-all.
# With SOAK=20m programs are replaced while they are traced for that long, by each
# of two ways, not for 30 minutes.
SOAK ?= 1
.PHONY: test-soak
test-soak: setup
	CI=true internal/setup/postgresql-symbols docs/recipes/build/postgresql
	GOUSDT_SOAK=$(SOAK) CI=true CGO_ENABLED=1 internal/setup/gotest . $(RACE) -count=1 -p 1 -timeout 60m ./usdt ./trace ./trace/internal/bpfgen ./watch
	GOUSDT_SOAK=$(SOAK) CI=true internal/setup/gotest . -count=1 -timeout 120m ./cmd/usdttrace ./examples/agent
	GOUSDT_SOAK=$(SOAK) CI=true internal/setup/gotest otelcol -count=1 -timeout 60m ./usdtreceiver

# As root, under the race detector: the packages whose tests compare counts with the
# programs' own, and the models, again and again for some minutes.
EXACT ?= 60
.PHONY: test-exact
test-exact:
	end=$$(($$(date +%s) + 60 * $(EXACT))); while [ $$(date +%s) -lt $$end ]; do \
		CI=true $(test) . $(RACE) -count=1 -p 1 -timeout 60m ./usdt ./trace ./cmd/usdttrace || exit 1; \
	done

# As root. Says in the end what each attack costs. The same tests are short in
# make test-all.
.PHONY: test-hostile
test-hostile:
	table=$$(mktemp) && trap 'rm -f $$table' EXIT && \
		GOUSDT_HOSTILE=$$table $(inmodules) test -count=1 -p 1 -timeout 60m $(HOSTILE_PACKAGES) && \
		echo "point | what is tried | before | now | attached after | CPU | memory | descriptors" && \
		sort -n $$table

.PHONY: generate
generate:
	internal/setup/install demo generate
	$(GO) generate ./...

.PHONY: renderer
renderer: graph := stack/flamegraph
renderer:
	build=$$(mktemp -d) && trap 'rm -rf $$build' EXIT && \
		cp $(graph)/package.json $(graph)/renderer.entry.js $$build && cd $$build && \
		npm install --no-audit --no-fund && \
		npx esbuild renderer.entry.js --bundle --minify --format=iife --global-name=flame \
			--legal-comments=none --outfile=renderer.js && \
		cp renderer.js renderer.css $(CURDIR)/$(graph)

.PHONY: lint
lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')) && \
		if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted" >&2; exit 1; fi
	# -e: tests of the profiler and of tetragon need modules that no proxy has.
	set -e; for module in $(modules); do \
		case $$module in profiler|tools/bench/coverage) lenient=-e;; *) lenient=;; esac; \
		(cd $$module && $(GO) mod tidy $$lenient -diff && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...); \
	done
	$(tool) ./lint ..
	$(tool) ./api ..
	# what is not for Linux alone, for 64 bits alone, or for one byte order
	GOOS=darwin $(inmodules) vet $(all)
	GOOS=windows $(inmodules) vet $(pure) ./internal/defs ./usdt/proc ./internal/procfs ./internal/procwatch ./cmd/usdtlist
	GOARCH=386 $(inmodules) vet $(all)
	GOARCH=s390x $(inmodules) vet $(pure)

.PHONY: api
api:
	$(tool) ./api -w ..

# go test fuzzes one target at a time.
.PHONY: fuzz
fuzz:
	@set -e; for package in $(call list,$(all)); do \
		targets=$$($(inmodules) test -list '^Fuzz' $$package); \
		for target in $$targets; do \
			case $$target in Fuzz*) \
				echo "$$package $$target"; \
				$(inmodules) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -parallel 1 $$package;; \
			esac; \
		done; \
	done

# What the packages have beside the commands: what these make themselves, and the
# licences of what they are linked with.
.PHONY: dist-files
dist-files:
	rm -rf dist-files && mkdir -p dist-files/man dist-files/completions
	set -e; for command in usdtlist usdttrace; do \
		run="$(GO) -C cmd run ./$$command"; \
		$$run --man >dist-files/man/$$command.1; \
		$$run --completion bash >dist-files/completions/$$command.bash; \
		$$run --completion zsh >dist-files/completions/_$$command; \
		$$run --completion fish >dist-files/completions/$$command.fish; \
	done
	mkdir dist-files/licences
	internal/setup/licences cmd ./usdtlist ./usdttrace >dist-files/licences/gousdt.txt
	internal/setup/licences profiler ./cmd/usdtprofile >dist-files/licences/usdtprofile.txt

GORELEASER := github.com/goreleaser/goreleaser/v2@v2.15.0

SBOM := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

# On a tag: builds and publishes everything. Without one: builds it into dist.
# One at a time: an archive has its files in the order in which they were built.
RELEASE_FLAGS ?=
.PHONY: release release-snapshot
release: dist-files
	GOBIN=$(CURDIR)/dist-files/bin $(GO) install $(SBOM)
	cp internal/setup/sbom dist-files/bin
	PATH=$(CURDIR)/dist-files/bin:$$PATH \
		$(GO) run $(GORELEASER) release -f internal/setup/goreleaser.yaml --clean --parallelism 1 $(RELEASE_FLAGS)
release-snapshot: RELEASE_FLAGS += --snapshot
release-snapshot: release

# As root.
VERSION ?= v0.1.0
.PHONY: release-dry-run
release-dry-run:
	internal/setup/release-dry-run $(VERSION)

.PHONY: vulnerabilities
vulnerabilities:
	set -e; for module in $(modules); do \
		(cd $$module && $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...); \
	done

# A Collector is built by the Collector's own builder. Its static binary runs in
# an empty image. By -e, modules that only tests of its components import may be
# missing: those that it consists of may not, or it does not compile.
COLLECTOR_BUILDER := go.opentelemetry.io/collector/cmd/builder@v0.162.0

# For another machine: TARGET=arm64. The builder itself is for this one.
TARGET ?=
.PHONY: otelcol
otelcol:
	GOBIN=$(CURDIR)/otelcol/build $(GO) install $(COLLECTOR_BUILDER)
	cd otelcol && CGO_ENABLED=0 GOFLAGS="$$GOFLAGS -e" $(if $(TARGET),GOARCH=$(TARGET)) \
		build/builder --config builder.yaml

# The built Collector, as root, with PostgreSQL, Prometheus and a backend that is
# away for a while, and the receiver with 200 containers and 2,000 processes.
# Building it takes minutes, so this is not in make test-all.
# As root. The interfaces of that profiler are young.
.PHONY: test-profiler-newest
test-profiler-newest: newest := testdata/build/newest.mod
test-profiler-newest: setup
	mkdir -p profiler/testdata/build
	cp profiler/go.mod profiler/$(newest)
	cp profiler/go.sum profiler/$(newest:.mod=.sum)
	cd profiler && $(GO) get -modfile=$(newest) go.opentelemetry.io/ebpf-profiler@latest
	internal/setup/gotest profiler -modfile=$(newest) -count=1 -p 1 $(TESTFLAGS) ./...

.PHONY: test-otelcol
test-otelcol: otelcol
	internal/setup/install test-otelcol
	GOUSDT_FLEET=1 CI=true internal/setup/gotest otelcol -count=1 $(TESTFLAGS) -tags collector ./usdtreceiver

# Of what mdatagen writes, the receiver has no use for a builder of logs, and has
# tests of its own, among them one that compares metadata.yaml with what it
# sends.
MDATAGEN ?= $(GO) run go.opentelemetry.io/collector/cmd/mdatagen@v0.155.0

.PHONY: metadata
metadata:
	cd otelcol/usdtreceiver && $(MDATAGEN) metadata.yaml && \
		rm -rf generated_*_test.go internal/metadatatest \
			internal/metadata/generated_logs.go internal/metadata/generated_*_test.go

# The commands in README.md and docs, as root: what they print is compared.
.PHONY: transcripts
transcripts:
	internal/setup/install recipes
	internal/setup/newest-packages
	internal/setup/newest-peers docs/recipes/build/peers
	PATH=$(CURDIR)/docs/recipes/build/peers/bin:$$PATH flock /tmp/gousdt-transcripts.lock $(tool) ./transcript $(addprefix ../,README.md $(wildcard docs/*.md docs/recipes/*.md))

# The numbers of docs/figures.md, as root. The whole package, so that no test is
# left out for its name.
.PHONY: figures
figures: setup
	figures=$$(mktemp) && trap 'rm -f $$figures' EXIT && \
		CI=true GOUSDT_FIGURES=$$figures $(GO) -C cmd test -count=1 ./usdttrace && \
		sed -i '/^|---/q' docs/figures.md && sort $$figures >>docs/figures.md

.PHONY: docs
docs:
	$(tool) ./lint -w ..

.PHONY: pictures
pictures:
	docs/pictures/make

HUGO := github.com/gohugoio/hugo@v0.152.2

# A link to what is not there is an error.
.PHONY: site
site:
	$(GO) run $(HUGO) --config docs/site/hugo.yaml --noBuildLock --cleanDestinationDir --destination dist-site

.PHONY: clean
clean:
	$(MAKE) -C internal/testdata clean
	rm -rf otelcol/build docs/recipes/build profiler/testdata/build dist-site
	$(GO) clean -testcache

# Measures this module and its peers, as root, and rewrites docs/measurements.md.
.PHONY: bench bench-smoke
bench:
	$(MAKE) -C tools/bench

# Every row once, as root: what they show is no measurement.
bench-smoke:
	internal/setup/install bench
	$(MAKE) -C tools/bench smoke

include internal/kernels/kernels.mk
