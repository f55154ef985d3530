# The commands of the project. Each installs what it needs (Debian, through apt, as root) and
# builds.

.PHONY: help install uninstall dist packages test-packages demo check test test-boot test-diskless static lint msrv book bench bench-attach bench-boot storms faults figures clean

help:
	@echo "make demo    share an image of this machine's files, lose its origin, go on reading (about a minute)"
	@echo "make check   what to run before a commit: lints, unit tests, house rules (2 minutes)"
	@echo "make test    install what the tests need and run all of them; without root: cargo test"
	@echo "make test-boot  boot small machines under emulation and test the ublk export in them (a few minutes)"
	@echo "make test-diskless  boot rooms of diskless machines under emulation, over the network (about 25 minutes; two of the tests are part of .ci/run)"
	@echo "make install  build vfield as one static program with all features, and put it, its manual, completions and units below PREFIX (/usr/local); make uninstall takes them away"
	@echo "make dist    the static program with all that belongs to it as an archive, with checksums: target/dist"
	@echo "make packages  packages for Debian and rpm, and a container image of the static program, with bills of materials and checksums: target/packages (ARCH=aarch64, ARCH=both: for ARM64 as well)"
	@echo "make test-packages  install, enable, upgrade and remove those packages on two fresh machines with systemd (a minute, root)"
	@echo "make static  only the static program: target/static/vfield (that for an initramfs: scripts/static --initramfs FILE)"
	@echo "make lint    formatting, lints, words and documentation, with warnings as errors"
	@echo "make msrv    build with the oldest compiler that is promised (rustup)"
	@echo "make book    the documents as a site: target/book (mdBook)"
	@echo "make bench   measure against other servers in the same run, then storms; results: target/bench (RECORD=1: the documents too)"
	@echo "make bench-attach  ublk, NBD and FUSE side by side in a machine under emulation (about 10 minutes)"
	@echo "make bench-boot  a room of emulated machines from the field, and from one server, over slow links (an hour)"
	@echo "make faults  kill, freeze, starve and cut off real processes while all read (about half an hour, root)"
	@echo "make figures  write the tables and plots of docs/benchmarks, and the front page's figures, from the recorded data"
	@echo "make storms  only the storms: rooms of machines that read one image at once (about 45 minutes, root)"

install uninstall:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" PROGRAM="$(PROGRAM)" scripts/install $@

dist:
	@scripts/dist

packages:
	@SIGN="$(SIGN)" ARCH="$(ARCH)" scripts/packages

test-packages:
	@scripts/test-packages

check:
	@scripts/check

msrv:
	@scripts/msrv

book:
	@scripts/book

demo:
	@scripts/demo

test:
	@scripts/test

test-boot:
	@scripts/test-boot

test-diskless:
	@scripts/test-diskless

static:
	@scripts/static "$${CARGO_TARGET_DIR:-target}/static/vfield"

lint:
	@scripts/lint

bench:
	@scripts/setup test bench
	@scripts/bench $(if $(RECORD),--record)
	@scripts/storm-table $(if $(RECORD),--record)

bench-attach:
	@scripts/setup test boot
	@scripts/machine
	@scripts/bench-attach $(if $(RECORD),--record)

bench-boot:
	@scripts/setup test boot bench
	@scripts/machine
	@scripts/bench-boot $(if $(RECORD),--record)

storms:
	@scripts/setup test bench
	@scripts/storm-table $(if $(RECORD),--record)

faults:
	@scripts/faults $(if $(RECORD),--record)

figures:
	@scripts/figures

clean:
	cargo clean
