# snapshot/
