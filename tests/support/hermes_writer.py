"""Drives Hermes's own SessionDB for the tests: one JSON command a line on stdin, one JSON answer a line on stdout.

    {"do": "append_message", "session_id": "s", "role": "user", "content": "hi"}  ->  {"ok": 1}
    {"do": "nonsense"}                                                            ->  {"error": "..."}

A command is the name of a SessionDB method with its keyword arguments, or one of the commands below. Versions of Hermes differ in
what their methods take: arguments that this one's method lacks are dropped, and named in the answer ("dropped").

    hello                           the version, the methods, the summary's framing
    open     path                   opens (and makes) a database; closes the one that was open
    burst    session_id rows [tag]  appends user and assistant rows in turn, as fast as SessionDB can; answers their ids
    sql      script [[sql, params]] runs statements in one transaction, for what SessionDB has no method for; answers all rows
    later    seconds                moves Hermes's clock on
    fork     parent child messages  compacts a session into a child, the way this version does
    edit     session_id messages    puts a kept prefix in place of a session's rows, the way this version's edit-and-resend does
    vacuum                          rebuilds the file
    keep     path                   copies the database to another file
    restore  path                   overwrites the database with such a copy in its place, as `hermes import` does
    close                           closes the database
    exit                            ends
"""

import importlib.metadata
import inspect
import json
import sqlite3
import sys
import time
from pathlib import Path

import hermes_state


class Clock:
    """The time module as Hermes sees it, ahead of the real one."""

    ahead = 0.0

    def __getattr__(self, name):
        return getattr(time, name)

    def time(self):
        return time.time() + self.ahead


class Writer:
    def __init__(self):
        self.db = None
        self.path = None
        self.clock = Clock()
        hermes_state.time = self.clock
        self.version = installed_version()

    def hello(self):
        return {
            "version": self.version,
            "methods": sorted(n for n, _ in inspect.getmembers(hermes_state.SessionDB, inspect.isfunction) if n[0] != "_"),
            "framing": summary_framing(),
        }

    def open(self, path):
        self.close()
        self.path = Path(path)
        self.db = hermes_state.SessionDB(self.path)

    def close(self):
        if self.db is not None:
            self.db.close()
            self.db = None

    def burst(self, session_id, rows, tag="row"):
        ids = []
        for n in range(rows):
            user = n % 2 == 0
            ids.append(
                self.db.append_message(
                    session_id,
                    "user" if user else "assistant",
                    f"{tag} {n}",
                    finish_reason=None if user else "stop",
                )
            )
        return ids

    def sql(self, script):
        def run(conn):
            return [[list(row) for row in conn.execute(sql, params).fetchall()] for sql, params in script]

        return self.db._execute_write(run)

    def later(self, seconds):
        self.clock.ahead += seconds
        return self.clock.time()

    def fork(self, parent, child, messages):
        # 0.20.1 shows parent, child and rows in one transaction; 0.19 the rows in one; before, each row in its own.
        if hasattr(self.db, "publish_compression_child"):
            self.db.publish_compression_child(
                parent_session_id=parent, child_session_id=child, source="cli", model="stub-model",
                messages=messages, require_compression_lease=False,
            )
            return
        self.db.end_session(parent, "compression")
        self.db.create_session(child, "cli", model="stub-model", parent_session_id=parent)
        if hasattr(self.db, "archive_and_compact") and self.numbers() >= (0, 19):
            self.db.replace_messages(child, messages)
            return
        for message in messages:
            self.method("append_message", {"session_id": child, **message})

    def edit(self, session_id, messages):
        self.method("replace_messages", {"session_id": session_id, "messages": messages, "archive_dropped": True})

    def vacuum(self):
        with self.db._lock:
            self.db._conn.execute("VACUUM")

    def keep(self, path):
        copy = sqlite3.connect(path)
        with self.db._lock:
            self.db._conn.backup(copy)
        copy.close()

    def restore(self, path):
        self.close()
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self.path.write_bytes(Path(path).read_bytes())
        self.open(self.path)

    def numbers(self):
        return tuple(int(number) for number in self.version.split(".")[:2])

    def method(self, name, kwargs):
        """Calls a method of SessionDB with those of the arguments that it takes."""
        function = getattr(self.db, name)
        takes = accepted(self.db, name)
        dropped = sorted(k for k in kwargs if takes is not None and k not in takes)
        return function(**{k: v for k, v in kwargs.items() if k not in dropped}), dropped


def installed_version():
    """The version beside the module in use: another one may be installed further down the path."""
    beside = [str(Path(hermes_state.__file__).parent)]
    found = importlib.metadata.distributions(path=beside)
    versions = [d.version for d in found if (d.metadata["Name"] or "").startswith("hermes-agent")]
    return versions[0] if versions else importlib.metadata.version("hermes-agent")


def accepted(db, name):
    """The arguments that a method takes; None where it passes all on to something that can't be looked into."""
    parameters = inspect.signature(getattr(db, name)).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return set(parameters)
    if name == "create_session" and hasattr(db, "_insert_session_row"):
        return set(parameters) | set(inspect.signature(db._insert_session_row).parameters)
    return None


def summary_framing():
    """What Hermes puts before and after a compaction's summary; null where this version keeps it elsewhere."""
    try:
        from agent import context_compressor
    except ImportError:
        return None
    prefix = getattr(context_compressor, "SUMMARY_PREFIX", None)
    end = getattr(context_compressor, "_SUMMARY_END_MARKER", None)
    return None if prefix is None else {"prefix": prefix, "end": end or ""}


def main():
    # Whatever Hermes itself prints must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    writer = Writer()
    names = "hello open close burst sql later fork edit vacuum keep restore"
    own = {n: getattr(writer, n) for n in names.split()}
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        answer = {}
        try:
            if do == "exit":
                break
            if do in own:
                result = own[do](**command)
            else:
                result, dropped = writer.method(do, command)
                if dropped:
                    answer["dropped"] = dropped
            answer["ok"] = result
        except Exception as error:  # whatever Hermes raises is for the test to see
            answer["error"] = f"{do}: {type(error).__name__}: {error}"
        print(json.dumps(answer, default=str), file=answers, flush=True)
    writer.close()


if __name__ == "__main__":
    main()
