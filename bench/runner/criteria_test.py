# SPDX-License-Identifier: Apache-2.0
"""What becomes of a figure. bench/criteria --quick runs it before it measures."""
import os
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

from . import build, criteria

DISTURBED = {"ext_cpu_pct": 90}
FAST = criteria.Figure("fast", True, DISTURBED)
SLOW = criteria.Figure("slow", False, DISTURBED)
SLOW_ALONE = criteria.Figure("slow, and nobody else ran", False, {"ext_cpu_pct": 0})
WRONG = criteria.Figure("3 deliveries missing", False, DISTURBED, sound=False)
UNREACHABLE = RuntimeError("no connection\n| to the broker")


class Attempts(unittest.TestCase):
    def measured(self, *outcomes):
        """Runs one criterion on a disturbed machine: its figures or errors, in this order. Returns the last row, and whether the run failed."""
        left = list(outcomes)

        def measure(_):
            outcome = left.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        options = SimpleNamespace(quick=False, patience=30, noise=12)
        with tempfile.TemporaryDirectory() as out, mock.patch.object(build, "OUT", out):
            table, failed = criteria.run({}, options, [criteria.Criterion("x", "title", "must", measure)])
            with open(os.path.join(out, "criteria.jsonl")) as f:
                self.assertEqual(len(f.readlines()), len(outcomes) - len(left), "every try is recorded")
        return table.splitlines()[-1], failed

    def test_slowness_is_tried_again_where_others_disturb(self):
        row, failed = self.measured(SLOW, SLOW, FAST)
        self.assertFalse(failed)
        self.assertIn("~fast", row)
        row, failed = self.measured(SLOW_ALONE, FAST)
        self.assertTrue(failed)
        self.assertIn("nobody else", row)

    def test_what_is_wrong_is_never_tried_again(self):
        row, failed = self.measured(WRONG, FAST)
        self.assertTrue(failed)
        self.assertIn("3 deliveries missing | **fail**", row)

    def test_an_error_is_a_failure_and_is_in_the_table(self):
        for error in UNREACHABLE, ConnectionResetError("reset by peer"):
            row, failed = self.measured(error, FAST)
            self.assertTrue(failed)
            self.assertIn(f"{type(error).__name__}: ", row)
            self.assertEqual(row.count("|"), 5)


class Idle(unittest.TestCase):
    def test_a_stream_without_a_heartbeat_fails(self):
        held = {"empty": 0, "ended": 0}
        for heartbeats, right in (0, False), (1, True):
            self.assertIs(criteria.idle_is_quiet({**held, "answered": 0, "heartbeats": heartbeats}, quick=False), right)
        self.assertTrue(criteria.idle_is_quiet({**held, "answered": 0, "heartbeats": 0}, quick=True))
        self.assertFalse(criteria.idle_is_quiet({**held, "answered": 1, "heartbeats": 5}, quick=False))
