"""What the daemons share: pipes, processes, signals, the disk thread, inotify, the lock sendmutex."""
