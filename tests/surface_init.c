/*
 * surface_init: starts a surface init and hands its control channel over descriptor 3, so that tests in Python can start hosts and
 * make cells as the engine does. Ends, and the init with it, when descriptor 3 closes.
 */
#include <stdio.h>
#include <unistd.h>

#include "snapshot/init.h"

#include "base/banned.h"

#define HAND_OVER_FD 3

int main(void)
{
	struct furca_err err = FURCA_ERR_INIT;
	FURCA_AUTO_PROC struct furca_proc init = FURCA_PROC_NONE;
	FURCA_AUTO_FD struct furca_fd control = FURCA_FD_NONE;
	char end;

	if (furca_fd_cloexec(HAND_OVER_FD, 1) < 0 || furca_init_start(&init, &control, &err) < 0) {
		(void)fprintf(stderr, "surface_init: %s\n", err.code ? err.text : "descriptor 3 is not open");
		return 1;
	}
	if (furca_fd_send(HAND_OVER_FD, "C", 1, &control.n, 1) != 1)
		return 1;
	furca_fd_done(&control); /* the test's copy alone keeps the init alive */
	while (read(HAND_OVER_FD, &end, 1) > 0)
		;
	return 0;
}
