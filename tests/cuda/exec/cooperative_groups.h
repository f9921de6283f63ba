/* Stands in for CUDA's header: the grid barrier. */
#ifndef SUT_EXEC_COOPERATIVE_GROUPS_H
#define SUT_EXEC_COOPERATIVE_GROUPS_H

#include "cuda_runtime.h"

namespace cooperative_groups
{

class grid_group
{
  public:
    /* The caller's line is that of the function called here; __builtin_FILE and __builtin_LINE name it. */
    void sync(const char *file = __builtin_FILE(), int line = __builtin_LINE()) const;
};

inline grid_group this_grid()
{
    return grid_group();
}

} // namespace cooperative_groups

#endif // SUT_EXEC_COOPERATIVE_GROUPS_H
