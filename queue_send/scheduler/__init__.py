"""The scheduler of one channel: a pure state machine that returns actions (docs/design/scheduler.md)."""
