"""A third party's engine and broker, which share no word with those that speck brings.

`canal` keeps records in logs, in each of which a reader has a place: it knows no announcements, no
marks and no figures. `loom` runs patterns (texts) at a site whose agent is the only way to it; it
makes up ids of its own, pushes its status, and keeps the state of a run in one folder, in which it
goes on. Neither is installed: `tests/third_party` on the path of Python is enough.
"""
