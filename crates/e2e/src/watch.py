# Reads an export again and again, compares each byte with a file, and says how that went, one line
# for each event:
#
#     round N S           the export was read N times to its end; the longest read took S seconds
#     wrong AT            bytes at AT differ
#     refused AT ERROR    a read failed; the export is opened again
#     slow S AT FROM TO   a read took S seconds; the daemon's log grew from FROM to TO bytes
#
# Arguments: the export (an NBD address, or a file of a mount); the file to compare with; the
# daemon's log; from how many seconds on a read is slow; the seconds of a pause before each read;
# files whose cached pages are forgotten before each read.
import os
import sys
import time

where, path, log, slow_s, pause_s, *caches = sys.argv[1:]
PIECE = 1 << 20
with open(path, "rb") as file:
    expected = file.read()


def forget(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


class Nbd:
    def __init__(self):
        import nbd

        self.handle = nbd.NBD()
        self.handle.connect_uri(where)

    def read(self, count, at):
        return bytes(self.handle.pread(count, at))

    def close(self):
        pass


class File:
    def __init__(self):
        self.fd = os.open(where, os.O_RDONLY)

    def read(self, count, at):
        for cache in caches:
            forget(cache)
        found = b""
        while len(found) < count:
            # A file system that goes in the midst of a read gives what it had, and then an error.
            part = os.pread(self.fd, count - len(found), at + len(found))
            if not part:
                break
            found += part
        return found

    def close(self):
        os.close(self.fd)


def say(*words):
    print(*words, flush=True)


longest_s = 0.0


def read_all(export):
    global longest_s
    for at in range(0, len(expected), PIECE):
        wanted = expected[at : at + PIECE]
        time.sleep(float(pause_s))
        began, begun_at = time.monotonic(), os.path.getsize(log)
        try:
            found = export.read(len(wanted), at)
        except Exception as error:
            say("refused", at, error)
            return False
        finally:
            took_s = time.monotonic() - began
            longest_s = max(longest_s, took_s)
            if took_s >= float(slow_s):
                say("slow", f"{took_s:.1f}", at, begun_at, os.path.getsize(log))
        if found != wanted:
            say("wrong", at)
        # A reader at work, not one that wants all that the machine can do.
        time.sleep(0.01)
    return True


rounds = 0
while True:
    try:
        export = Nbd() if where.startswith("nbd") else File()
    except Exception:
        # The daemon is starting.
        time.sleep(0.05)
        continue
    while read_all(export):
        rounds += 1
        say("round", rounds, f"{longest_s:.3f}")
    export.close()
