"""What the benchmarks share: where results and recorded data lie, and how a table gets into a page.

A benchmark writes to `target/bench` (CARGO_TARGET_DIR counts). Only with `--record` does it change
`docs/benchmarks/data`, and then `scripts/figures` writes tables, plots and the figures of README.md.
Nothing but python's own library.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "docs/benchmarks"
DATA = BENCHMARKS / "data"
PLOTS = BENCHMARKS / "plots"


def target_dir():
    """Where cargo builds, and where results lie that are not recorded."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()


def setup(*purposes):
    """Installs what a script needs, or ends it where that cannot be; scripts/setup says what is missing."""
    if subprocess.run([ROOT / "scripts/setup", *purposes]).returncode:
        sys.exit(1)


def results(name):
    """The file of a benchmark's own results; its folder is there afterwards."""
    path = target_dir() / "bench" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def data(name):
    """What is recorded under a name; nothing is an empty object."""
    path = DATA / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(path, text):
    """Replaces a file in one step: an interrupted run leaves the old one."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def keep(name, own):
    """Writes what this run measured to `target/bench`."""
    path = results(f"{name}.json")
    write(path, json.dumps(own, indent=1) + "\n")
    print(f"results: {path}")


def commit(name, text):
    """Puts the text of a record into the documents, with all that is made of it."""
    write(DATA / f"{name}.json", text)
    # A page without its marks is told of; the figures are recorded all the same.
    subprocess.run([sys.executable, ROOT / "scripts/figures"], check=False)


def machine():
    """This machine in a few words."""
    model = next((row.split(":")[1].strip() for row in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
                  if row.startswith("model name")), platform.machine())
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{os.cpu_count()} cores ({model}), {ram} GiB, Linux {platform.release().split('-')[0]}"


def between(page, name, text):
    """The page with other text between its marks `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, _, rest = page.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{text.strip()}\n{end}{tail}"
