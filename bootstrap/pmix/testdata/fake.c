// A library with libpmix's names that says it has another version, VERSION, and whose
// calls hang for as long as the file FLAG is there.
#include <unistd.h>

const char *PMIx_Get_version(void) { return VERSION; }
const char *PMIx_Error_string(int s) { return "FAKE"; }
#define HANGS(name)                                             \
	int name(void)                                              \
	{                                                       \
		while (access(FLAG, F_OK) == 0)                 \
			usleep(5000);                           \
		return -1;                                      \
	}
HANGS(PMIx_Init)
HANGS(PMIx_Finalize)
HANGS(PMIx_Initialized)
HANGS(PMIx_Abort)
HANGS(PMIx_Put)
HANGS(PMIx_Commit)
HANGS(PMIx_Get)
HANGS(PMIx_Fence)
HANGS(PMIx_Register_event_handler)
HANGS(PMIx_Group_construct)
HANGS(PMIx_Query_info)
HANGS(PMIx_Spawn)
