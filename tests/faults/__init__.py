"""Failing a run at its n-th writing call, for every n, until a run succeeds."""
