# `make` alone prints the targets. Nothing is needed but git, make and Go 1.26;
# the tools are built from tools/go.mod, the packages with tools/nfpm.mod.

GO       ?= go
# A tool's module cannot be named in a workspace: its path is printed outside, and the tool runs inside.
tool      = $$(GOWORK=off $(GO) tool -modfile=tools/go.mod -n $(1))
BIN      := bin
PROGRAMS := headroom powerd coordinator scheduler powerlab
# Formatting covers what people write, not what protoc does.
SOURCES   = $(shell sh tools/files.sh | grep '\.go$$' | grep -vE '^(api/headroom|internal/pins)/')
# The project's packages, whatever else lies in its folder: ./... would find that too.
PACKAGES  = $(shell GO="$(GO)" sh tools/packages.sh all)
FUZZTIME ?= 10s

.DEFAULT_GOAL := help
.PHONY: help build demo test check engines lint fmt generate bench fuzz robustness packages archive hooks clean

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## put headroom, powerd, coordinator, scheduler and powerlab into bin/
	@mkdir -p $(BIN)
	CGO_ENABLED=0 GOWORK=off $(GO) build -trimpath -buildvcs=false -o $(BIN)/ $(patsubst %,./cmd/%,$(filter-out powerlab,$(PROGRAMS)))
	$(if $(filter powerlab,$(PROGRAMS)),CGO_ENABLED=0 GOWORK=off $(GO) build -C lab -trimpath -buildvcs=false -o $(abspath $(BIN))/ ./cmd/powerlab)

demo: build ## run the demonstration: a small cluster, real jobs, cuts and kills; at most 90 s
	bin/powerlab demo $(ARGS)

test: build ## install what the tests need and run all of them
	@sh lab/test/run.sh

check: ## format, lint, root tests, and tests of what changed, with -race where there is concurrency; at most 4 minutes
	@$(MAKE) --no-print-directory format-check lint
	$(GO) test -count=1 .
	GORACE=atexit_sleep_ms=0 $(GO) test -race -short -parallel 6 $$(GO="$(GO)" sh tools/packages.sh race)
	$(GO) test -short $$(GO="$(GO)" sh tools/packages.sh plain | grep -vx '\.')
	@GO="$(GO)" sh lab/test/engines.sh --stale

engines: build ## run the proofs on real engines that the suite leaves out; some: make engines PROOFS="NAME ..."
	@GO="$(GO)" sh lab/test/engines.sh $(PROOFS)

.PHONY: format-check
format-check:
	@out=$$($(call tool,gofumpt) -modpath headroom -d $(SOURCES)) && [ -z "$$out" ] || { echo "$$out"; echo 'make fmt formats these files'; exit 1; }

lint: ## golangci-lint, with the architecture rules, and the project's own checks
	$(call tool,golangci-lint) run $(PACKAGES)
	$(GO) run ./internal/vet/cmd/headroomvet -test=false $(PACKAGES)
	$(GO) vet -tags guest ./lab/test/vm/guest

fmt: ## format all Go files
	$(call tool,golangci-lint) fmt $(SOURCES)

generate: ## regenerate the code and api/openapi.yaml from the protobuf sources
	cd api && GOWORK=off $(GO) tool -modfile=../tools/go.mod buf generate
	@sed -i s/additionalProperties:\ false/unevaluatedProperties:\ false/ api/openapi.yaml # fields inside of oneOf count too

bench: build ## measure the figures and print them as a table
	bin/powerlab bench $(ARGS)

fuzz: ## run every fuzz target for FUZZTIME (10s)
	@for p in $(PACKAGES); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
			echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
		done; \
	done

robustness: ## run again what shows each bug that was found; one: make repro-NAME
	@GO="$(GO)" sh lab/test/repro.sh all

# docs/robustness.md tells what each was about.
repro-%:
	@GO="$(GO)" sh lab/test/repro.sh $*

packages: ## build the deb and rpm packages into bin/packages/; fetches nfpm
	@GO="$(GO)" sh deploy/nfpm/build.sh bin/packages

archive: ## write the source archive bin/headroom.tar.gz, with the list of its files
	@mkdir -p bin && git ls-files >bin/files.txt
	git archive --prefix=headroom/ --add-file=bin/files.txt -o bin/headroom.tar.gz HEAD

hooks: ## build and test the plug-ins for Hadoop and Spark (Java) into bin/; needs Maven
	@sh hooks/build.sh bin

clean: ## remove what the build wrote
	rm -rf bin hooks/target hooks/*/target
