"""From a finished capture to the entry that stands for it: replacement code, its guards, and what it does when its
graph raises."""
