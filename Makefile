# SPDX-License-Identifier: Apache-2.0
.PHONY: test race lint fuzz crash interop bench vuln

ROUNDS ?= 300
FUZZTIME ?= 10s

test: ; go test ./...
race: ; go test -race ./...
lint: ; .ci/lint
fuzz: ; .ci/fuzz $(FUZZTIME)
crash: ; go test ./internal/broker -run Crash -count=1 -timeout 30m -crash.rounds=$(ROUNDS)
interop: ; interop/run
bench: ; bench/run
vuln: ; .ci/vuln
