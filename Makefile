# The habits of this project; CMake does the work, in build/.
BUILD ?= build
TYPE ?= Release
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
ARGS ?=
MAKEFLAGS += --no-print-directory
PROGRAM := $(BUILD)/flashoverlap
export DATA JOBS STEPS RUN SECONDS_TO_TRAIN

.PHONY: help build run test check asan tsan bench report format lint arrows install clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16
	@echo "  DATA=FILE trains on another text, ARGS='--layers 6 ...' adds options of 'train' (report: of 'bench')"

build: ## builds everything in build/, installing what is missing
	@bash tools/setup.sh
	@cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=$(TYPE) > $(BUILD).log 2>&1 \
	  || { cat $(BUILD).log; rm -f $(BUILD).log; exit 1; }; rm -f $(BUILD).log
	@cmake --build $(BUILD) -j $(JOBS)

run: ## trains a small GPT on real text, writes a sample, compares strategies (3 minutes)
	@bash tools/setup.sh $(if $(DATA),,text)
	@$(MAKE) build
	@bash tools/run.sh $(PROGRAM) $(ARGS)

test: build ## every test
	@ctest --test-dir $(BUILD) --output-on-failure -j 2

check: build ## format, lint, include arrows, tests
	@bash tools/setup.sh lint
	@bash tools/lint.sh check-format
	@bash tools/lint.sh lint $(BUILD)
	@bash tools/arrows.sh . $(BUILD)
	@ctest --test-dir $(BUILD) --output-on-failure -j 2

asan: ## tests under the address and undefined behaviour sanitizers
	@bash tools/setup.sh
	@bash tools/sanitize.sh address

tsan: ## tests under the thread sanitizer
	@bash tools/setup.sh
	@bash tools/sanitize.sh thread

bench: build ## measures what RESULTS.md shows (an hour, idle machine); ONLY=1,4: these sections
	@bash tools/setup.sh bench
	@bash tools/results.sh --build $(BUILD) $(if $(ONLY),--only $(ONLY))

report: build ## an HTML page with timelines of one layer: report.html
	@$(PROGRAM) bench mlp --dtype bf16 --wire bf16 --link auto:0.56,5us --rows 2048 --report report.html $(ARGS)

format: ## formats all C files
	@bash tools/setup.sh lint
	@bash tools/lint.sh format

lint: build ## clang-tidy
	@bash tools/setup.sh lint
	@bash tools/lint.sh lint $(BUILD)

arrows: build ## who includes whom, names, lengths
	@bash tools/arrows.sh . $(BUILD)

install: build ## into PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## removes what was built; run/ (text, models, logs) stays
	@rm -rf $(BUILD) build-asan build-tsan
