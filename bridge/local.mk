# bridge/
