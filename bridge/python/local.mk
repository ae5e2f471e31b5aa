# bridge/python/: the client package; installed by pip, not by make
EXTRA_DIST += \
	bridge/python/README.md \
	bridge/python/pyproject.toml \
	bridge/python/furca/__init__.py \
	bridge/python/furca/_aio.py \
	bridge/python/furca/_attach.py \
	bridge/python/furca/_capability.py \
	bridge/python/furca/_client.py \
	bridge/python/furca/_frames.py \
	bridge/python/furca/_object.py \
	bridge/python/furca/_result.py \
	bridge/python/furca/_start.py \
	bridge/python/furca/_wire.py \
	bridge/python/furca/py.typed \
	bridge/python/furca/suggestions.py \
	bridge/python/furca/adapters/__init__.py \
	bridge/python/furca/adapters/executor.py \
	bridge/python/furca/adapters/langchain.py \
	bridge/python/furca/adapters/smolagents.py \
	bridge/python/furca/adapters/tools.py
