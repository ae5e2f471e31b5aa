# demo/: the main job on real data
EXTRA_DIST += demo/run.sh demo/audit.py
