# A clone needs Go (the version in go.mod). `make test` lists the tests with
# further requirements.

# Examples that are commands.
EXAMPLES := $(notdir $(patsubst %/main.go,%,$(wildcard examples/*/main.go)))
FUZZTIME ?= 10s

# With a C compiler and the C library's headers, programs can load libfabric and libpmix
# at run time, wherever they are installed then; without, they are pure Go.
CGO_ENABLED ?= $(shell printf '\#include <dlfcn.h>\n\#include <stdlib.h>\n' | $(CC) -E - >/dev/null 2>&1 && echo 1 || echo 0)

PREFIX ?= /usr/local

# `ferry version` names the commit also where GOFLAGS has -buildvcs=false.
COMMIT := $(shell [ -e .git ] && { git rev-parse HEAD && { git diff --quiet HEAD || echo .dirty; }; } 2>/dev/null | tr -d '\n')
LDFLAGS := $(if $(COMMIT),-ldflags '-X github.com/ferrympi/ferry/cmd/ferry/internal/version.commit=$(COMMIT)')

.PHONY: run build install uninstall deb rpm image dist test check race fuzz lint bench build-instructions build-vendor instructions compare compare-debian13 generate proto clean

# The main job, on 4 ranks of this machine.
run: build
	bin/ferry run -n 4 --explain bin/spmv -cube 64 -iterations 100
	bin/ferry bench latency -m 8:16KiB

# The commands record no path of this folder (-trimpath): they are installed, and ferry build
# compiles sources.
build:
	@mkdir -p bin
	@echo go build -o bin/ ./cmd/ferry ./examples/...
	@CGO_ENABLED=$(CGO_ENABLED) go build -trimpath $(LDFLAGS) -o bin/ ./cmd/ferry $(addprefix ./examples/,$(EXAMPLES))

# The command, its manual pages, completions, documentation, the sources of the examples
# and a module file for Lmod below PREFIX, or below DESTDIR/PREFIX. As root, build first as
# yourself, because install builds only if bin/ferry is missing.
install:
	@[ -x bin/ferry ] || $(MAKE) --no-print-directory build
	scripts/install "$(DESTDIR)$(PREFIX)"

# Removes the files and folders that install created, and no others.
uninstall:
	scripts/install --remove "$(DESTDIR)$(PREFIX)"

# A Debian or RPM package in bin/, and its name.
deb rpm: build
	@scripts/package $@ bin

# An image of the command and of PROGRAMS, without other files, in bin/ferry-image.tar for
# `docker load` and `podman load`. LIBRARIES=1, which needs root, puts them into a Debian with
# libfabric and UCX.
PROGRAMS ?= ./examples/hello
image:
	@rm -rf bin/image && mkdir -p bin/image
	@CGO_ENABLED=$(if $(LIBRARIES),1,0) go build -trimpath $(LDFLAGS) -o bin/image/ ./cmd/ferry $(PROGRAMS)
	@$(if $(LIBRARIES),scripts/rootfs bin/image-root.tar libfabric1 libucx0 ibverbs-providers)
	@scripts/image bin/image bin/ferry-image.tar $(if $(LIBRARIES),bin/image-root.tar)
	@rm -rf bin/image bin/image-root.tar

# bin/ferry-VERSION.tar.gz has the sources of the commit that is checked out, and knows
# its version.
dist:
	@mkdir -p bin
	@scripts/dist bin

# The tests to run after a change, in at most 5 minutes on two cores. The report ends with
# the failures, the skipped tests by reason, and the slowest packages.
test:
	scripts/test

# Everything: launchers, soak, matrix and documents at their usual size, then the quick tests of the concurrent
# packages again under the race detector. REQUIRE_ALL=1 makes a missing part of the machine a
# failure instead of a skip.
check:
	scripts/test check

# Everything under the race detector.
race:
	scripts/test race

# Each Fuzz function for FUZZTIME, as many at a time as there are processors.
fuzz:
	scripts/fuzz $(FUZZTIME)

lint:
	scripts/lint

bench: build
	for b in hop latency bw bibw mbw_mr barrier bcast reduce allreduce gather scatter allgather alltoall reduce_scatter iallreduce ibcast dup create init hello grow 'shrink --add 8' shrink agree recover memory idle; do bin/ferry bench $$b || exit 1; done

# Compares with Open MPI and MPICH, which it installs as root: the page and samples of this machine in
# bench/results, and its section of docs/performance.md. COMPARE has flags of the tool,
# such as "-quick" or "-rows latency|barrier"; "-render" only writes the pages
# again. scripts/debian13 has newer peers. xargs handles quotes like a shell, and | as a letter.
compare:
	REQUIRE_ALL=1 scripts/setup scripts/packages.compare
	@$(MAKE) --no-print-directory build-instructions build-vendor
	@printf '%s\n' "$$COMPARE" | xargs -t go run ./bench/compare

# The same rows beside the newer peers of Debian 13, which root can have in the folder ROOT
# of a Debian of another release.
compare-debian13:
	@printf '%s\n' "$$COMPARE" | xargs -t scripts/debian13 "$(ROOT)"

# Instructions per message under each policy of communicator ids, by valgrind.
instructions: build-instructions
	bin/instructions

build-instructions:
	REQUIRE_ALL=1 scripts/setup scripts/packages.instructions
	@mkdir -p bin
	CGO_ENABLED=0 go build -o bin/ ./bench/instructions

# The command with a transport that is compiled in.
build-vendor: build
	CGO_ENABLED=$(CGO_ENABLED) bin/ferry build --ferry . --with ./examples/vendor-udp -o bin/ferry-udp

generate:
	go generate ./...

# The Go files of transport.proto, which are checked in. It needs protoc and the network.
proto:
	scripts/proto

clean:
	rm -rf bin
