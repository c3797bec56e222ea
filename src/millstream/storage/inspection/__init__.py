"""What a log looks like from inside: for the console and for `millstream storage`."""
