# langs/
