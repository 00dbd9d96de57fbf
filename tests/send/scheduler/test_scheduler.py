"""The scheduler, driven by whatever order of events hypothesis thinks of, against a model of the disk."""

from hypothesis import settings

from support.plugins.amount import amount
from support.send.machine import Machine

TestScheduler = Machine.TestCase
TestScheduler.settings = settings(max_examples=amount(60, 300), stateful_step_count=60, deadline=None)
