/*
 * One thread at a time in an object, as the library asks for. Waiting for the gate never holds the interpreter lock, so two
 * threads that share an object take turns. A gate that was closed by a thread of the parent process when this process was
 * forked will never open: passing it is refused instead.
 */
#ifndef SUTURE_PYTHON_GATE_H
#define SUTURE_PYTHON_GATE_H

#include "errors.h"
#include "unlocked.h"

#include <atomic>
#include <mutex>
#include <pthread.h>
#include <thread>

namespace suture_python
{

class Gate
{
  public:
    /* With the interpreter lock held. */
    void lock()
    {
        if (!mutex.try_lock()) {
            if (generation.load() != forks().load())
                raise(SUT_ERROR_SEQUENCE, "this object was in use by another thread when the process was forked; its "
                                          "state in this process is not complete: make a new one");
            if (is_mine())
                raise(SUT_ERROR_SEQUENCE, "this object is in use by the call that led here");
            const Unlocked unlocked;
            mutex.lock();
        }
        owner = std::this_thread::get_id();
        generation = forks().load();
    }
    void unlock()
    {
        owner = std::thread::id();
        mutex.unlock();
    }

    /* This thread is inside. */
    bool is_mine() const
    {
        return owner.load() == std::this_thread::get_id();
    }

  private:
    static std::atomic<unsigned> &forks()
    {
        static std::atomic<unsigned> count{0};
        static const int registered = pthread_atfork(nullptr, nullptr, [] { count++; });
        (void)registered;
        return count;
    }

    std::mutex mutex;
    std::atomic<std::thread::id> owner{};
    std::atomic<unsigned> generation{0};
};

/* A gate for Python: what several calls do together, one thread at a time; the thread that is inside may come in again. */
class Turn
{
  public:
    void enter()
    {
        if (!gate.is_mine())
            gate.lock();
        depth++;
    }
    void leave()
    {
        if (--depth == 0)
            gate.unlock();
    }

  private:
    Gate gate;
    int depth = 0; /* of the thread that is inside */
};

} // namespace suture_python

#endif
