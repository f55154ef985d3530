"""The tables of docs/benchmarks and the figures of README.md, as Markdown made of docs/benchmarks/data.

Each table is a function without arguments in `TABLES`; its name is that of the marks in the page.
Every row ends with the command that repeats it alone. Caller: scripts/figures.
"""

import importlib.machinery
import importlib.util
import textwrap

import record

# Payload for each byte that a link counts; crates/measure/src/storm/plan.rs has the reason.
PAYLOAD = 1448 / 1514


def script(name):
    """A script beside this one as a module: its list of rows is the order of its table."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(record.ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def table(columns, rows):
    """Markdown of columns `NAME` or `NAME>` (to the right), and rows of cells."""
    names = [name.rstrip(">") for name in columns]
    rule = ["--:" if name.endswith(">") else "---" for name in columns]
    lines = [names, rule, *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def prose(text, lead=""):
    """A paragraph or list item of at most 100 columns."""
    return textwrap.fill(lead + text, 100, subsequent_indent=" " * len(lead), break_long_words=False, break_on_hyphens=False)


def amount(value, unit):
    """Three digits that count with their unit; whole numbers from a thousand on, milliseconds below a second."""
    if unit == "s" and abs(value) < 1:
        value, unit = value * 1e3, "ms"
    return f"{f'{value:.3g}' if abs(value) < 1000 else count(round(value))} {unit}"


# --- one node

def single_node():
    rows = record.data("single-node")["rows"]
    runs = {}
    for row in rows:
        runs.setdefault(tuple(row["measured"].items()), []).append(row["part"])
    lines = []
    for run, parts in runs.items():
        run = dict(run)
        some = "" if len(runs) == 1 else f" ({', '.join(dict.fromkeys(parts))})"
        lines.append(prose(f"Measured on {run['date']}{some}: {run['machine']}; image of {run['image_bytes'] >> 20} MiB, "
                           f"medians of {run['rounds']}; load before the start {run['load_before']:.1f}.") + "\n")
    cells = []
    for row in rows:
        bound = "" if row["wanted"] is None else f"{'at least' if row['more_is_better'] else 'at most'} {row['wanted']}"
        mark = {None: "", True: " ✓", False: " ✗"}[row["reached"]]
        cells.append([row["what"], amount(row['vfield'], row['unit']),
                      "" if row["other"] is None else f"{row['against']}: {amount(row['other'], row['unit'])}",
                      "" if row["ratio"] is None else f"{row['ratio']:.2f}", bound + mark,
                      f"`scripts/bench --only {row['part']}`"])
    return "\n".join([*lines, table(["what", "vfield>", "against>", "ratio>", "wanted", "again"], cells)])


def attach():
    told = record.data("attach")
    cells = [[row["reads"], row["way"], f"{row['speed']} {row['unit']}", f"{row['daemon_s_per_gb']:.2f}",
              f"{row['all_s_per_gb']:.2f}", "`make bench-attach`"] for row in told["rows"]]
    return table(["reads", "by way of", "speed>", "daemon, s/GB>", "all processors, s/GB>", "again"], cells)


# --- what a byte costs

CYCLE_ROWS = {"fill": "an origin and a node that fills", "pair": "an origin and two nodes that fill",
              "read": "a client reads through a node without a store"}
CYCLE_WAYS = {"bare": "bare processes, resident pages", "fresh": "bare processes, fresh pages", "nbdkit": "nbdkit, without a node"}


def cycle_runs():
    """The first and the last recorded run: before and after what the page is about."""
    runs = record.data("cycles")["runs"]
    return [runs[0], runs[-1]]


def cycles():
    runs = cycle_runs()
    # Of a machine that does other work, only processes' own time says something.
    busy = any(run["load_before"] >= 0.5 for run in runs)
    lead = [prose(f"{run['label'].capitalize()}: {run['date']}, {run['machine']}; image of {run['size']}, medians of {run['rounds']}; "
                  f"load before the start {run['load_before']}.", "- ") for run in runs]
    if busy:
        lead.append(prose("The machine did other work meanwhile, so its busy time and the rates are left out.", "- "))
    cells = []
    for row, what in CYCLE_ROWS.items():
        systems = [(f"vfield, {run['label']}", run["rows"][row]["vfield"], run["rows"][row]["bare"]) for run in runs]
        last = runs[-1]["rows"][row]
        systems += [(name, last[way], last["bare"]) for way, name in CYCLE_WAYS.items() if way in last]
        for system, found, bare in systems:
            machine = ["–"] * 3 if busy else [f"{found['busy']:.2f}", f"{found['busy'] / bare['busy']:.2f}", f"{found['rate']:.2f}"]
            cells.append([what, system, f"{found['processes']:.2f}", f"{found['processes'] / bare['processes']:.2f}", f"{found['sender']:.2f}",
                          *machine, f"`scripts/cycles --only {row}`"])
    return "\n".join([*lead, "", table(["path", "by", "processes, s/GB>", "of bare>", "sender, s/GB>", "machine, s/GB>", "of bare>", "GB/s>",
                                        "again"], cells)])


def cycle_kinds():
    runs = cycle_runs()
    columns = [(row, run) for row in CYCLE_ROWS for run in runs]
    cells = [[kind, *(f"{run['kinds'][row][kind]:.3f}" for row, run in columns), "`scripts/cycles`"] for kind in runs[0]["kinds"]["fill"]]
    cells.append(["all", *(f"{sum(run['kinds'][row].values()):.2f}" for row, run in columns), "`scripts/cycles`"])
    return table(["s/GB of", *(f"{row}, {run['label']}>" for row, run in columns), "again"], cells)


# --- storms

def latest_storms():
    """The newest entry of each row, with the run that it comes from."""
    return {entry["row"]: (entry, run) for run in record.data("storms")["runs"] for entry in run["rows"]}


def storm_rows(is_wanted):
    """The rows of the script's list that are recorded: (row, entry)."""
    latest = latest_storms()
    return [(row, latest[row.key][0]) for row in script("storm-table").ROWS if row.key in latest and is_wanted(row)]


def again(row):
    return f"`scripts/storm-table --only {row.name}`"


def storm_what(row, entry):
    """What a row is called, with what a reader of the table has to know of it."""
    lost = sum(row.n - sample["ok"] for sample in entry["samples"])
    notes = [f"{lost} of {row.n * len(entry['samples'])} readers failed"] if lost else []
    notes += ["ARP table full"] if entry["median"]["table_fulls"] else []
    name = {"chain": "a chain of relays", "nbdkit": "nbdkit, one server"}.get(row.system, f"vfield {row.what}")
    return name + (f" ({'; '.join(notes)})" if notes else "")


def bound(row):
    """What the links allow: a reader's own link, but for what it holds already; one server's link for all."""
    if row.system == "nbdkit":
        return f"{PAYLOAD / row.n:.3f}"
    if not row.options.get("warm"):
        return f"{PAYLOAD:.3f}"
    return f"{PAYLOAD / (1 - row.share):.3f}" if row.share < 1 else "–"


def is_field(row):
    return row.mode == "storm" and row.group != "weather"


def storm_runs():
    groups = {}
    for entry, run in latest_storms().values():
        groups.setdefault(run["started"], set()).add(entry["group"])
    lines = []
    for run in record.data("storms")["runs"]:
        if run["started"] not in groups:
            continue
        note = " **Provisional.**" if run["provisional"] else ""
        arp = f"; ARP table raised to {run['arp_table']}" if run["arp_table"] else ""
        names = [group for group in script("storm-table").GROUPS if group in groups[run["started"]]]
        lines.append(prose(f"{run['started'][:10]}, commit {run['commit']} ({', '.join(names)}): {run['machine']}; "
                           f"medians of {run['rounds']}{arp}.{note}", "- "))
    return "\n".join(lines)


def storm_efficiency():
    cells = []
    for row, entry in storm_rows(is_field):
        found = [sample["efficiency"] for sample in entry["samples"]]
        at = entry["median"]
        cells.append([row.n, row.mbit, f"{entry['settings']['size_bytes'] >> 20}", storm_what(row, entry),
                      f"**{at['efficiency']:.3f}**", f"{min(found):.3f}–{max(found):.3f}", bound(row),
                      f"{at['makespan_s']:.1f}", f"{at['origin_copies']:.2f}", again(row)])
    return table(["readers>", "Mbit/s>", "MiB>", "what", "efficiency>", "least–most>", "links allow>",
                  "last reader, s>", "origin sent, images>", "again"], cells)


def storm_cost():
    cells = []
    for row, entry in storm_rows(is_field):
        at = entry["median"]
        rate, cpu = at["mb_per_s"], at["cpu_s_per_gb"]
        cells.append([row.n, storm_what(row, entry), f"{rate['min']:.1f}/{rate['median']:.1f}/{rate['max']:.1f}",
                      f"{cpu['daemons']:.2f}", f"{cpu['readers']:.2f}", f"{cpu['machine']:.2f}",
                      f"{at['machine_busy'] * 100:.0f} %", f"{at['slowest_read_s']:.2f}", again(row)])
    return table(["readers>", "what", "MB/s of a reader, least/median/most>", "nodes, s/GB>", "readers, s/GB>",
                  "machine, s/GB>", "busy>", "slowest read, s>", "again"], cells)


def storm_stagger():
    cells = []
    for row, entry in storm_rows(lambda row: row.mode == "stagger"):
        ideal, attach_s = entry["median"]["over_ideal"], entry["median"]["attach_s"]
        cells.append([row.n, row.mbit, entry["settings"]["size_bytes"] >> 20, row.what, f"{ideal['min']:.2f}",
                      f"{ideal['median']:.2f}", f"{ideal['max']:.2f}", f"{attach_s['median'] * 1e3:.0f}",
                      f"{attach_s['max'] * 1e3:.0f}", again(row)])
    return table(["nodes>", "Mbit/s>", "MiB>", "what", "least>", "median>", "most>", "export open after, ms>",
                  "at most, ms>", "again"], cells)


def storm_random():
    cells = []
    for row, entry in storm_rows(lambda row: row.group == "random"):
        at = entry["median"]["random"]
        cells.append([storm_what(row, entry), row.n, row.mbit, f"{at['reads_per_s']:.0f}", f"{at['p50_us'] / 1e3:.1f}",
                      f"{at['p99_us'] / 1e3:.1f}", f"{at['max_us'] / 1e3:.0f}", again(row)])
    return table(["what", "readers>", "Mbit/s>", "reads/s of all>", "median, ms>", "99 of 100, ms>", "slowest, ms>",
                  "again"], cells)


def storm_matrix():
    """A row for each kind of read: the field, and the one server beside it."""
    found = {row.name: (row, entry) for row, entry in storm_rows(lambda row: row.group == "matrix")}
    cells = []
    for name, (row, entry) in found.items():
        server = found.get(f"{name}-nbdkit")
        if not server:
            continue
        field, one = entry["median"]["random"], server[1]["median"]["random"]
        cells.append([row.n, *row.what.split(", ")[1:], *(cell for at in (field, one) for cell in (
            f"{at['reads_per_s']:.0f}", f"{at['min_us']:.0f}", f"{at['p95_us'] / 1e3:.1f}")),
                      f"{field['reads_per_s'] / one['reads_per_s']:.2f}", f"`scripts/storm-table --only {name}*`"])
    return table(["readers>", "order", "block", "image", "reads/s of all>", "least, us>", "95 of 100, ms>", "nbdkit, reads/s>",
                  "least, us>", "95 of 100, ms>", "ratio>", "again"], cells)


def storm_weather():
    found = storm_rows(lambda row: row.group == "weather")
    calm = found[0][1]["median"]["others"]["last_s"]
    cells = []
    for row, entry in found:
        others = entry["median"]["others"]
        failed = max(sample["others"]["failed"] for sample in entry["samples"])
        cells.append([row.what, row.n, row.mbit, entry["settings"]["size_bytes"] >> 20, f"{others['last_s']:.1f}",
                      f"{others['last_s'] / calm:.2f}", f"{others['longest_gap_s']:.2f}", failed,
                      f"{entry['median']['origin_copies']:.2f}", again(row)])
    return table(["to one host", "readers>", "Mbit/s>", "MiB>", "last of the others, s>", "over nothing>",
                  "longest without bytes, s>", "readers with errors>", "origin sent, images>", "again"], cells)


# --- the simulator

def scale_rows(kind):
    """Recorded rows of a kind, in the script's order, with the options that repeat them today."""
    told, rows = record.data("scale"), script("scale").ROWS
    return [(name, {**told[name], "args": " ".join(rows[name])}) for name in rows if name in told and rows[name][0] == kind]


def words(row):
    """An option's value in a recorded command line."""
    parts = row["args"].split()
    return {name: value for name, value in zip(parts, parts[1:]) if name.startswith("-")}


def count(value):
    return f"{value:,}".replace(",", " ")


def sim(row):
    return f"`cargo sim -- {row['args']}`"


def scale_storms():
    cells = []
    for name, row in scale_rows("storm"):
        if name.split("-")[0] in ("stagger", "shuffle", "weather"):
            continue
        given = words(row)
        store = f"warm, stores of {given['--store'].rstrip('%')} %" if "--warm" in row["args"] else "cold"
        zones = "–" if row["zone_copies"] is None else f"{row['zone_copies']:.2f}"
        cells.append([count(row["nodes"]), given.get("--zone-size", "–"), store, row["image_bytes"] >> 20,
                      given.get("--chunk", "64K").rstrip("K"), f"{row['finish_over_limit']:.2f}",
                      f"{row['finish_s']:.1f}", f"{row['origin_copies']:.2f}", zones, f"{row['control_share'] * 100:.2f}",
                      f"{row['longest_stall_s']:.2f}", sim(row)])
    return table(["nodes>", "zone>", "state", "MiB>", "chunk, KiB>", "last reader, link times>", "s>",
                  "origin sends, images>", "into a zone, images>", "control, %>", "longest stall, s>", "again"], cells)


def scale_stagger():
    cells = [[row["nodes"], row["image_bytes"] >> 20, words(row)["--stagger"],
              *(f"{row['own_over_limit'][which]:.2f}" for which in ("least", "median", "most")), sim(row)]
             for name, row in scale_rows("storm") if name.startswith("stagger")]
    return table(["nodes>", "MiB>", "one more each>", "least>", "median>", "most>", "again"], cells)


def scale_shuffle():
    cells = [[row["nodes"], row["image_bytes"] >> 20, words(row)["--stagger"], words(row)["--store"].replace("%", " %"),
              f"{row['own_over_limit']['median']:.2f}", f"{row['own_over_limit']['most']:.2f}",
              f"{row['longest_stall_s']:.2f}", f"{row['origin_copies']:.2f}", sim(row)]
             for name, row in scale_rows("storm") if name.startswith("shuffle")]
    return table(["nodes>", "MiB>", "one more each>", "stores>", "median>", "most>", "longest stall, s>",
                  "origin sends, images>", "again"], cells)


def scale_weather():
    names = {"none": "nothing", "slow": "its link falls to a tenth", "stop": "it stops, its connections stay",
             "cut": "it is cut off", "kill": "it is killed", "leave": "it leaves", "join": "ten more join, and read"}
    cells = []
    for name, row in scale_rows("storm"):
        if name.startswith("weather"):
            joined = row["joined_over_limit"]
            cells.append([names[name.split("-")[1]], f"{row['others_over_limit']:.2f}", f"{joined:.2f}" if joined else "–",
                          f"{row['origin_copies']:.2f}", sim(row)])
    return table(["to one node of ten", "last of the others, link times>", "last of those that join, from their start>",
                  "origin sends, images>", "again"], cells)


def scale_boot():
    cells = [[row["nodes"], f"{row['median_round_trips']:.2f}", f"{row['median_s'] * 1e3:.1f}",
              f"{row['p99_s'] * 1e3:.1f}", sim(row)] for _, row in scale_rows("boot")]
    return table(["nodes>", "median read, round trips>", "ms>", "99 of 100, ms>", "again"], cells)


def scale_idle():
    cells = []
    for _, row in scale_rows("idle"):
        sent = row["control_bytes_per_s"]
        cells.append([count(row["nodes"]), row["zone_size"] or "–", f"{sent['least']:.0f}",
                      f"{row['control_bytes_per_s_mean']:.0f}", f"{sent['most']:.0f}", sim(row)])
    return table(["nodes>", "zone>", "least, bytes/s>", "mean, bytes/s>", "most, bytes/s>", "again"], cells)


def scale_wanted():
    told = record.data("scale")
    zones = [name for name in told if name.startswith("z50")]
    warm = [name for name in told if name.startswith("warm-")]
    storms = [name for name in told if name.split("-")[0] in ("cold", "warm", "warm30", "z50", "big")]
    idle = [name for name in told if name.startswith("idle")]
    ends = "last reader, link times"
    goals = [
        ("one zone, cold, 50 nodes", ends, 1.25, ["cold-50"], "finish_over_limit"),
        ("one zone, cold, 1 000 nodes, 540 MiB", ends, 1.3, ["cold-1000"], "finish_over_limit"),
        ("zones, up to 1 000 nodes", ends, 1.6, [name for name in zones if name != "z50-10000"], "finish_over_limit"),
        ("zones, 10 000 nodes, 256 MiB", ends, 1.6, ["big-10000", "big-10000-coarse"], "finish_over_limit"),
        ("zones, 10 000 nodes, 64 MiB", ends, 1.6, ["z50-10000"], "finish_over_limit"),
        ("zones, 100 000 nodes, 540 MiB", ends, 1.6, ["big-100000-long"], "finish_over_limit"),
        ("zones, 100 000 nodes, 32 MiB", ends, 1.6, ["big-100000"], "finish_over_limit"),
        ("stores of 6 %, warm, 50 to 1 000 nodes", ends, 1.15, warm, "finish_over_limit"),
        ("origin, in zones", "images sent", 1.1, zones, "origin_copies"),
        ("each zone's uplink", "images", 1.2, zones, "zone_copies"),
        ("boot, median read", "round trips", 3, ["boot-50", "boot-200"], "median_round_trips"),
        ("control in storms", "share of payload", 0.01, storms, "control_share"),
        ("idle, mean of all nodes", "bytes/s", 2000, idle, "control_bytes_per_s_mean"),
    ]
    cells = []
    for what, unit, limit, names, key in goals:
        found = [told[name][key] for name in names if name in told and told[name][key] is not None]
        low, high = min(found), max(found)
        shown = [f"{value:.0f}" if limit >= 100 else f"{value:.4f}" if limit < 0.1 else f"{value:.2f}" for value in (low, high)]
        cells.append([what, unit, f"at most {limit}", shown[0] if shown[0] == shown[1] else f"{shown[0]} to {shown[1]}",
                      "✓" if high <= limit else "✗"])
    return table(["what", "unit", "wanted", "reached>", ""], cells)


# --- faults, machines, and measurements by hand

def faults():
    told, rows = record.data("faults"), script("faults").ROWS
    cells = []
    for name in (name for name in rows if name in told):
        found = told[name]["finding"]
        stalls = [f"{found[key]:.2f}" if found[key] else "–" for key in ("longest_stall_s", "own_stall_s", "longest_restart_s")]
        cells.append([rows[name][0], found["times"], f"{found['seconds']:.0f}", f"{found['bytes'] / 1e9:.1f}", found["wrong"],
                      len(found["errors"]), *stalls, "; ".join(found["amiss"]) or "nothing", f"`scripts/faults {name}`"])
    return table(["fault", "times>", "s>", "GB read>", "wrong bytes>", "errors>", "longest stall, s>",
                  "of the struck node, s>", "restart, s>", "left over", "again"], cells)


def pack():
    told = record.data("pack")
    cells = [[f"`{name}`", f"{row['wall_s']:.2f}", f"{row['cpu_s']:.2f}", f"{row['memory_mb']:.0f}", "`scripts/bench-pack`"]
             for name, row in told["rows"].items()]
    rows = table([f"{told['contents_bytes'] / 1e6:.0f} MB in {told['files']} files", "time, s>", "processor time, s>", "most memory, MB>", "again"], cells)
    wall = {name: row["wall_s"] for name, row in told["rows"].items()}
    cells = [["`vfield pack` against `mkfs.erofs`", f"{wall['vfield pack'] / wall['mkfs.erofs']:.2f}", "at most 1"],
             ["with `--like`, against without", f"{wall['vfield pack --like'] / wall['vfield pack']:.2f}", "at most 1"]]
    ratios = table(["ratio of times", "reached>", "wanted"], cells)
    return f"Measured on {told['date']}: {told['machine']}, median of {told['rounds']} rounds.\n\n{rows}\n\n{ratios}"


def boot():
    told = record.data("boot")
    cells = [[row["way"], row["machines"], f"{row['first_up_s']:.0f}", f"{row['last_up_s']:.0f}",
              f"{row['server_sent_images']:.2f}", row["rounds"], f"`scripts/bench-boot --only {row['row']}`"]
             for row in told["rows"]]
    rooms = table(["the root comes from", "machines>", "first up, s>", "last up, s>", "from the server, images>",
                   "rounds>", "again"], cells)
    cells = [[row["way"], f"{row['begun_s']:.1f}", f"{row['mounted_after_s']:.1f}",
              f"`scripts/bench-boot --only {row['row']}`"] for row in told["rows"] if row["machines"] == 1]
    one = table(["one machine", "switched on to first process, s>", "from there to mounted root, s>", "again"], cells)
    by_row = {row["row"]: row for row in told["rows"]}
    field, server, alone = (by_row[name] for name in ("field-ublk:8", "nbdkit:8", "field-ublk:1"))
    disk, served = by_row["qemu-field:1"], by_row["qemu-nbdkit:1"]
    cells = [["last of 8 machines up, against nbdkit", f"{field['last_up_s'] / server['last_up_s']:.2f}", "at most 0.35"],
             ["the origin sends, against one machine", f"{field['server_sent_images'] / alone['server_sent_images']:.2f}",
              "at most 1.2"],
             ["one machine up, QEMU's NBD client and ext4, against nbdkit", f"{disk['last_up_s'] / served['last_up_s']:.2f}",
              "at most 1.05"]]
    for machines, wanted in ((1, "at most 1.2"), (8, "at most 1.0")):
        packed, other = (by_row.get(f"{way}:{machines}") for way in ("field-packed", "field-squashfs"))
        if packed and other:
            who = "one machine" if machines == 1 else f"last of {machines} machines"
            cells.append([f"own programs, {who} up, packed against squashfs",
                          f"{packed['last_up_s'] / other['last_up_s']:.2f}", wanted])
    ratios = table(["ratio", "reached>", "wanted"], cells)
    held = told["memory"]
    cells = [["resident, its program included", f"{held['resident_mb']:.1f}"],
             ["memory files, those parts included that nobody has touched lately", f"{held['memory_files_mb']:.1f}"]]
    memory = table([f"memory of the daemon with `--store {held['store']}`, everything read", "MB>"], cells)
    dates = {}
    for row in told["rows"]:
        dates.setdefault(row.get("date", told["date"]), []).append(f"`{row['row']}`")
    later = "".join(f"; {', '.join(names)} on {date}" for date, names in dates.items() if date != told["date"])
    return "\n\n".join([prose(f"Measured on {told['date']}{later}: {told['machine']}."), rooms, ratios, one, memory])


def by_hand(name):
    told = record.data("by-hand")[name]
    head = f"{prose(told['measured'])}\n\n" if told["measured"] else ""
    return head + table(told["columns"], told["rows"])


# --- the front page

def figures():
    rows = {row["what"]: row for row in record.data("single-node")["rows"]}
    wanted = [
        ("`nbdcopy`, 4 connections, from `serve`", "serve: nbdcopy, 4 connections, unix socket"),
        ("server's processor time for it", "serve: the server's processor time"),
        ("random 4 KiB reads over NBD, depth 32", "serve: fio, random 4 KiB, depth 32"),
        ("the same, depth 1: median delay", "serve: median delay at depth 1"),
        ("the same, all on one processor", "serve: median delay at depth 1, one processor for all"),
        ("sequential read of the FUSE file", "serve: FUSE, sequential"),
        ("one reader behind a link of 100 Mbit/s", "one reader, origin behind 100 Mbit/s"),
        ("a verified chunk one hop away, 1 Gbit/s", "one hop, 64 KiB, over a 1 Gbit/s link: median delay"),
        ("1 TiB sparse file: until it is served", "1 TiB sparse file: until it is served"),
        ("memory of an origin that 10 peers read", "10 peers read: memory of the origin"),
    ]
    cells = []
    for label, what in (pair for pair in wanted if pair[1] in rows):
        row = rows[what]
        other = "" if row["against"] == "bound" else f"{row['against']}: {amount(row['other'], row['unit'])}"
        cells.append([label, amount(row['vfield'], row['unit']), other])
    single = table(["one machine, image in memory", "V-FIELD>", "the best other>"], cells)
    latest = {row.name: entry for row, entry in storm_rows(is_field)}
    kinds = ["cold-100", "cold-6", "warm-6-gone", "warm-30", "nbdkit"]
    cells = []
    for readers in (10, 30, 50):
        found = [latest.get(f"n{readers}-{kind}") for kind in kinds]
        cells.append([readers, *("" if entry is None else f"{entry['median']['efficiency']:.3f}" if kind == "nbdkit"
                                 else f"{entry['median']['efficiency']:.2f}" for kind, entry in zip(kinds, found))])
    storms = table(["machines>", "cold>", "cold, each lends 6 %>", "warm, 6 %, origin gone>", "warm, 30 %>",
                    "one server for all (nbdkit)>"], cells)
    return f"{single}\n\n{storms}"


PAGES = {
    "README.md": {"figures": figures},
    "docs/benchmarks/single-node.md": {"single-node": single_node, "attach": attach, "pack": pack, "fuse": lambda: by_hand("fuse"),
                                       "seal": lambda: by_hand("seal")},
    "docs/benchmarks/cycles.md": {"cycles": cycles, "cycle-kinds": cycle_kinds},
    "docs/benchmarks/storms.md": {"runs": storm_runs, "efficiency": storm_efficiency, "cost": storm_cost,
                                  "stagger": storm_stagger, "random": storm_random, "matrix": storm_matrix, "weather": storm_weather,
                                  "seal": lambda: by_hand("seal-storms")},
    "docs/benchmarks/scale.md": {"storms": scale_storms, "stagger": scale_stagger, "shuffle": scale_shuffle, "weather": scale_weather,
                                 "boot": scale_boot, "idle": scale_idle,
                                 "wanted": scale_wanted, "models": lambda: by_hand("models"), "cost": lambda: by_hand("simulator")},
    "docs/benchmarks/diskless.md": {"boot": boot, "rooms": lambda: by_hand("rooms")},
    "docs/benchmarks/faults.md": {"faults": faults},
    "docs/benchmarks/fuzz.md": {"fuzz": lambda: by_hand("fuzz")},
}
