/*
 * The local arrays of the algebra, in shared memory. CUDA sets a thread's stack aside for every thread that can be resident on
 * the device, hundreds of thousands: arrays for 64 losses on the stack of the one thread that runs the algebra would cost
 * gigabytes. Here that thread takes them, last in, first out, from the block's memory, where the passes put elements aside (no
 * pass runs meanwhile).
 *
 * Included before the sources of the algebra, which declare them by SUT_ARRAY and SUT_ZEROS.
 */
#ifndef SUT_KERNELS_ARRAY_CUH
#define SUT_KERNELS_ARRAY_CUH

#include "kernels/device.cuh"

/* The execution layer keeps the most that was in use. */
#ifndef SUT_ARRAYS_IN_USE
#define SUT_ARRAYS_IN_USE(bytes) ((void)0)
#endif

namespace
{

/* The memory's first words in dynamic shared memory, so that arrays find it without being told. */
struct array_room {
    unsigned char *first, *next;
};

SUT_GPU array_room *rooms()
{
    SUT_DYNAMIC_SHARED(array_room, room);
    return room;
}

template <class T, int COUNT> class local_array
{
  public:
    SUT_MEMBER local_array()
    {
        array_room *const room = rooms();
        at_ = reinterpret_cast<T *>(room->next);
        room->next += SIZE;
        SUT_ARRAYS_IN_USE(room->next - room->first);
    }
    SUT_MEMBER explicit local_array(T value) : local_array()
    {
        for (int k = 0; k < COUNT; ++k)
            at_[k] = value;
    }
    SUT_MEMBER ~local_array()
    {
        rooms()->next = reinterpret_cast<unsigned char *>(at_);
    }
    local_array(const local_array &) = delete;
    local_array &operator=(const local_array &) = delete;
    SUT_MEMBER operator T *() const
    {
        return at_;
    }
    SUT_MEMBER T *operator->() const
    {
        return at_;
    }

  private:
    enum { SIZE = (COUNT * sizeof(T) + 7) / 8 * 8 };
    T *at_;
};

} // namespace

#undef SUT_ARRAY
#undef SUT_ZEROS
#define SUT_ARRAY(type, name, count) local_array<type, (count)> name
#define SUT_ZEROS(type, name, count) local_array<type, (count)> name((type)0)

#endif // SUT_KERNELS_ARRAY_CUH
