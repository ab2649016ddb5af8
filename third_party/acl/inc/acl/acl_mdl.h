#pragma once
// Model interface: only the dump switches are used here (aclmdlInitDump, aclmdlSetDump, aclmdlFinalizeDump).

#include "acl_base.h"
