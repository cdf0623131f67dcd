#!/bin/sh
# What a vendor's CI does: format, vet, the kits, the kits again under the race detector, and
# a ferry with the transport in which every case of `ferry matrix` passes. FERRY is the
# command ferry; the default is the one in PATH.
set -eu
cd "$(dirname "$0")"
ferry=${FERRY:-ferry}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

test -z "$(gofmt -l .)"
go vet ./...
go test ./...
CGO_ENABLED=1 go test -race ./...
"$ferry" build --with . -o "$out/myferry"
"$out/myferry" matrix --components 'ob1+udp' --junit "${JUNIT:-$out/matrix.xml}"
