# SPDX-License-Identifier: Apache-2.0
.PHONY: test race lint fuzz crash sim scale interop bench vuln

ROUNDS ?= 300
FOR ?= 60s
SIZE ?= 1
PARALLEL ?= 1
FUZZTIME ?= 10s

test: ; go test ./...
race: ; go test -race ./...
lint: ; .ci/lint
fuzz: ; .ci/fuzz $(FUZZTIME)
crash: ; go test ./internal/broker -run Crash -count=1 -timeout 30m -crash.rounds=$(ROUNDS)
sim: ; go test ./internal/sim -run Simulation -count=1 -v -timeout 0 -sim.for=$(FOR)
scale: ; go test ./internal/scale -count=1 -v -timeout 0 -parallel=$(PARALLEL) -scale=$(SIZE)
interop: ; interop/run
bench: ; bench/run
vuln: ; .ci/vuln
