/*
 * Runs a fuzz target over files, where there is no fuzzer: the arguments, or else every file of
 * $srcdir/tests/fuzz/corpus/NAME, where the program is called fuzz_NAME. Part of `make check`.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
	FILE *f = fopen(path, "rbe");
	long size;

	if (!f) {
		perror(path);
		return 1;
	}
	(void)fseek(f, 0, SEEK_END);
	size = ftell(f);
	rewind(f);
	/* Exactly as large as the input, so that a sanitizer sees a read behind it. */
	uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
	size_t n = data ? fread(data, 1, (size_t)size, f) : 0;
	(void)fclose(f);
	if (data && n == (size_t)size)
		(void)LLVMFuzzerTestOneInput(data, n);
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	const char *srcdir = getenv("srcdir"), *name = strstr(argv[0], "fuzz_");
	char dir[4096], path[8192];
	struct dirent *entry;
	int bad = 0, n = 0;
	DIR *d;

	for (int i = 1; i < argc; i++)
		bad |= run_file(argv[i]);
	if (argc > 1 || !name)
		return bad;
	while (strstr(name + 5, "fuzz_"))
		name = strstr(name + 5, "fuzz_");
	(void)snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".", name + 5);
	d = opendir(dir);
	if (!d) {
		perror(dir);
		return 1;
	}
	while ((entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		bad |= run_file(path);
		n++;
	}
	(void)closedir(d);
	(void)printf("%d inputs\n", n);
	return bad || n == 0;
}
