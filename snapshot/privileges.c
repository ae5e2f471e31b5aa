#include "snapshot/privileges.h"

#include <sys/capability.h>

#include "base/banned.h"

bool furca_privileges_have_admin(void)
{
	cap_flag_value_t value = CAP_CLEAR;
	cap_t caps = cap_get_proc();

	if (!caps)
		return false;
	(void)cap_get_flag(caps, CAP_SYS_ADMIN, CAP_EFFECTIVE, &value);
	(void)cap_free(caps);
	return value == CAP_SET;
}
