#include "bridge/idmap.h"

#include <errno.h>
#include <stdlib.h>

#include "base/banned.h"

#define SMALLEST 16

void furca_idmap_done(struct furca_idmap *map)
{
	free(map->slots);
	*map = FURCA_IDMAP_INIT;
}

/* Where the key's search begins: numbers in a row are spread by a multiplication (Fibonacci hashing). */
static size_t home(const struct furca_idmap *map, uint64_t key)
{
	return (size_t)((key * 0x9e3779b97f4a7c15ULL) >> 32) & (map->size - 1);
}

/* The slot that holds the key, or the free one where it would go. The table is never full. */
static size_t find(const struct furca_idmap *map, uint64_t key)
{
	size_t i = home(map, key);

	while (map->slots[i].value && map->slots[i].key != key)
		i = (i + 1) & (map->size - 1);
	return i;
}

void *furca_idmap_get(const struct furca_idmap *map, uint64_t key)
{
	return map->size ? map->slots[find(map, key)].value : NULL;
}

static int grow(struct furca_idmap *map)
{
	struct furca_idmap bigger = {.size = map->size ? map->size * 2 : SMALLEST, .count = map->count};

	bigger.slots = calloc(bigger.size, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < map->size; i++)
		if (map->slots[i].value)
			bigger.slots[find(&bigger, map->slots[i].key)] = map->slots[i];
	free(map->slots);
	*map = bigger;
	return 0;
}

int furca_idmap_add(struct furca_idmap *map, uint64_t key, void *value)
{
	if (furca_idmap_get(map, key))
		return -EEXIST;
	if (map->count * 2 >= map->size) {
		int r = grow(map);

		if (r < 0)
			return r;
	}
	map->slots[find(map, key)] = (struct furca_idmap_slot){key, value};
	map->count++;
	return 0;
}

void *furca_idmap_remove(struct furca_idmap *map, uint64_t key)
{
	if (map->size == 0)
		return NULL;
	size_t mask = map->size - 1, hole = find(map, key);
	void *value = map->slots[hole].value;

	if (!value)
		return NULL;
	map->count--;
	/* Closes the gap, so that no search ends early: what follows moves up unless it is nearer its home already. */
	for (size_t i = (hole + 1) & mask; map->slots[i].value; i = (i + 1) & mask) {
		size_t from_home = (i - home(map, map->slots[i].key)) & mask;

		if (from_home >= ((i - hole) & mask)) {
			map->slots[hole] = map->slots[i];
			hole = i;
		}
	}
	map->slots[hole] = (struct furca_idmap_slot){0};
	return value;
}

void *furca_idmap_next(const struct furca_idmap *map, size_t *at, uint64_t *ret_key)
{
	while (*at < map->size) {
		const struct furca_idmap_slot *slot = &map->slots[(*at)++];

		if (slot->value) {
			*ret_key = slot->key;
			return slot->value;
		}
	}
	return NULL;
}
