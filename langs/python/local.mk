# langs/python/
