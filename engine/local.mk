# engine/
