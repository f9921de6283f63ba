/*
 * See optimizer.h. Hyper-parameters are compared by identity, and a report is made only when it is wanted: see tensors.h for
 * why small things count here.
 */
#include "optimizer.h"

#include "convert.h"
#include "device.h"
#include "engine.h"
#include "gate.h"
#include "report.h"
#include "settings.h"
#include "slot.h"
#include "tensors.h"
#include "unlocked.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <mutex>

namespace suture_python
{

class Optimizer
{
  public:
    Optimizer(nb::object method_name, nb::list entries, nb::list groups, nb::object n_losses, nb::object loss_names,
              nb::object surgery, nb::dict options, nb::object threads, nb::object seed, nb::object isa)
        : method(optimizer_method(method_name)), m((int)integer("n_losses", n_losses, 1, SUT_MAX_LOSSES)),
          names_of_losses(texts("loss_names", loss_names)), tensors(entries, m, names_of_losses)
    {
        ContextSettings settings = context_settings(threads, seed, isa);
        settings.device = tensors.device();
        settings.stream = stream();
        context->open(settings, whose());
        for (nb::handle entry : groups) {
            sut_hyper h;
            refuse_whole(nb::cast<nb::dict>(entry), (int)hyper.size());
            check(sut_hyper_init(&h, method), context->ctx);
            read_hyper(nb::cast<nb::dict>(entry), method, &h, context->ctx);
            hyper.push_back(h);
            remembered.emplace_back();
            sizes.push_back((Py_ssize_t)nb::len(entry));
        }
        sut_optimizer_config_init(&config, method);
        sut_surgery_config_init(&config.surgery, surgery_method(surgery));
        for (auto [key, value] : options)
            if (const char *name = option_name(key);
                !take_surgery(name, value, m, &config.surgery, &arrays) && !take_optimizer(name, value, &config))
                refuse_unknown(key, sut_optimizer_method_name(method), known_options());
        if (!names_of_losses.empty() && (int)names_of_losses.size() != m)
            raise(SUT_ERROR_INVALID_ARGUMENT, ("loss_names has " + std::to_string(names_of_losses.size()) +
                                               " names, there are " + std::to_string(m) + " losses")
                                                  .c_str());
        use(make_engine(context));
    }

    /* rows: a list of n_losses lists with one gradient (or None) per tensor. */
    nb::object step(nb::object rows, nb::object losses, bool want_report)
    {
        std::lock_guard<Gate> lock(gate);
        read_losses(losses);
        const Call call(*this, want_report);
        tensors.gather(rows.ptr());
        return run(want_report);
    }

    /* One loss: the gradients are the tensors' attributes `grad`. */
    /* From the parameters' attributes `grad`. False, and nothing was done, where all are None. */
    nb::object step_grad(bool want_report)
    {
        std::lock_guard<Gate> lock(gate);
        if (m != 1)
            raise(SUT_ERROR_INVALID_ARGUMENT, "this optimizer has several losses");
        loss_values.clear();
        const Call call(*this, want_report);
        tensors.gather_attributes();
        if (!tensors.has_gradient())
            return nb::bool_(false);
        return run(want_report);
    }

    /* Weights of the coming step and the direction that they make. */
    nb::object direction(nb::object rows, nb::object losses, nb::object out)
    {
        std::lock_guard<Gate> lock(gate);
        read_losses(losses);
        const Call call(*this);
        tensors.gather(rows.ptr());
        const std::vector<void *> a = tensors.outputs(out, "direction", true, unlocks());
        look();
        std::vector<double> w((size_t)m);
        work([&] { return sut_optimizer_direction(opt, tensors.gradients(), values(), w.data(), pointers(a)); });
        nb::list result;
        for (double x : w)
            result.append(x);
        return nb::tuple(result);
    }

    /* The stages of a step. */
    void propose(nb::object rows, nb::object losses, nb::object u_out, nb::object inverse_metric_out)
    {
        std::lock_guard<Gate> lock(gate);
        read_losses(losses);
        const Call call(*this);
        tensors.gather(rows.ptr());
        const std::vector<void *> u = tensors.outputs(u_out, "u", true, unlocks());
        const std::vector<void *> d = tensors.outputs(inverse_metric_out, "inverse metric", true, unlocks());
        look();
        work([&] { return sut_optimizer_propose(opt, tensors.gradients(), values(), pointers(u), pointers(d)); });
    }

    nb::object project(nb::object rows, nb::object p_out)
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        tensors.gather(rows.ptr());
        const std::vector<void *> p = tensors.outputs(p_out, "p", true, unlocks());
        look();
        std::unique_ptr<Report> report(new Report);
        work([&] { return sut_optimizer_project(opt, tensors.gradients(), pointers(p), &report->r); });
        return nb::cast(report.release(), nb::rv_policy::take_ownership);
    }

    nb::object apply(nb::object rows, nb::object p_in, bool want_report)
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        tensors.gather(rows.ptr());
        const std::vector<void *> p = tensors.outputs(p_in, "p", false, unlocks());
        look();
        std::unique_ptr<Report> report(want_report ? new Report : nullptr);
        work([&] {
            return sut_optimizer_apply(opt, tensors.gradients(), const_cast<const void *const *>(pointers(p)),
                                       report ? &report->r : nullptr);
        });
        parameters_were_written();
        return report ? nb::cast(report.release(), nb::rv_policy::take_ownership) : nb::none();
    }

    /* These groups have the tensors of this optimizer, each in its place. */
    bool fits(nb::list groups) const
    {
        if (nb::len(groups) != hyper.size())
            return false;
        size_t k = 0;
        for (size_t g = 0; g < hyper.size(); g++) {
            const nb::object given = groups[g]["params"];
            const nb::list list = PyList_Check(given.ptr()) ? nb::borrow<nb::list>(given) : nb::list(given);
            for (nb::handle tensor : list) {
                if (k == tensors.size() || tensor.ptr() != tensors.parameters()[k].array.ptr() ||
                    tensors.parameters()[k].group != (int)g)
                    return false;
                k++;
            }
        }
        return k == tensors.size();
    }

    /* Take over the hyper-parameters of the groups, which costs nothing when no value was replaced. False when they do not
     * fit, or when the number of losses is another one. */
    bool follow(nb::list groups, int n_losses)
    {
        if (n_losses != m || !fits(groups))
            return false;
        for (size_t g = 0; g < hyper.size(); g++)
            set_group((int)g, nb::cast<nb::dict>(groups[g]));
        return true;
    }

    /* Hyper-parameters of one group, as they are now in `group`. */
    void set_group(nb::object index, nb::dict group)
    {
        set_group(group_index(index), group);
    }

    void set_group(int k, nb::dict group)
    {
        const Py_ssize_t size = PyDict_Size(group.ptr());
        if (size != sizes[(size_t)k]) {
            refuse_whole(group, k);
            sizes[(size_t)k] = size;
        }
        if (!remember(k, group))
            return;
        std::lock_guard<Gate> lock(gate);
        sut_hyper h;
        try {
            check(sut_optimizer_get_hyper(alive(), k, &h), context->ctx);
            read_hyper(group, method, &h, context->ctx);
            check(sut_optimizer_set_hyper(opt, k, &h), context->ctx);
        } catch (...) {
            remembered[(size_t)k].clear();
            throw;
        }
        hyper[(size_t)k] = h;
    }

    nb::dict group(nb::object index)
    {
        const int k = group_index(index);
        std::lock_guard<Gate> lock(gate);
        sut_hyper h;
        check(sut_optimizer_get_hyper(alive(), k, &h), context->ctx);
        nb::dict result;
        sut_parameter_info info;
        for (int j = 0; sut_optimizer_parameter(method, j, &info) == SUT_OK; j++) {
            double x = 0;
            (void)sut_hyper_get(&h, method, info.name, &x);
            if (info.is_flag)
                result[info.name] = x != 0;
            else
                result[info.name] = x;
        }
        return result;
    }

    /* The rate of all groups. */
    void set_lr(nb::object lr)
    {
        const double rate = number("lr", lr);
        std::lock_guard<Gate> lock(gate);
        check(sut_optimizer_set_lr(alive(), -1, rate), context->ctx);
        for (std::vector<nb::object> &values : remembered)
            values.clear();
    }

    void set_align(nb::object align, nb::object rho_m, nb::object rho_v)
    {
        std::lock_guard<Gate> lock(gate);
        sut_optimizer_config c = config;
        (void)take_optimizer("align", align, &c);
        (void)take_optimizer("rho_m", rho_m, &c);
        (void)take_optimizer("rho_v", rho_v, &c);
        check(sut_optimizer_set_align(alive(), c.align, c.rho_m, c.rho_v), context->ctx);
        config.align = c.align;
        config.rho_m = c.rho_m;
        config.rho_v = c.rho_v;
    }

    /* Waits for the steps that a device has queued, and raises what the first refused one of them has to say. */
    void synchronize()
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        work([&] { return sut_optimizer_synchronize(opt); });
    }

    void parameters_changed()
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        look();
        const Masters kept = read_masters(opt, tensors);
        work([&] { return sut_optimizer_parameters_changed(opt); });
        restore_masters(opt, tensors, kept);
    }

    /* path: as the file system wants it, os.fsencode(). */
    void save(nb::bytes path, bool include_parameters)
    {
        std::lock_guard<Gate> lock(gate);
        const sut_checkpoint_config c = checkpoint(include_parameters, true);
        const Call call(*this);
        look(true);
        const char *const name = path.c_str();
        const Unlocking unlocking(*this);
        work([&] { return sut_optimizer_save(opt, name, &c); });
    }

    void load(nb::bytes path, bool include_parameters, bool restore_settings)
    {
        std::lock_guard<Gate> lock(gate);
        const sut_checkpoint_config c = checkpoint(include_parameters, restore_settings);
        const Call call(*this);
        look(true);
        const char *const name = path.c_str();
        const Unlocking unlocking(*this);
        work([&] { return sut_optimizer_load(opt, name, &c); });
        after_load(include_parameters);
    }

    nb::bytes to_bytes(bool include_parameters)
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        look();
        return bytes(include_parameters);
    }

    void from_bytes(nb::bytes data, bool include_parameters, bool restore_settings)
    {
        std::lock_guard<Gate> lock(gate);
        const sut_checkpoint_config c = checkpoint(include_parameters, restore_settings);
        const Call call(*this);
        look();
        const char *const begin = data.c_str();
        const size_t size = data.size();
        work([&] { return sut_optimizer_load_memory(opt, begin, size, &c); });
        after_load(include_parameters);
    }

    /* State of one tensor: the library's own memory, in the shape of the tensor. On a GPU a DeviceArray. */
    nb::object state(const char *slot, nb::object index)
    {
        std::lock_guard<Gate> lock(gate);
        return find(slot, index).view(engine);
    }

    /* A copy of it in an array of NumPy. */
    nb::object read_state(const char *slot, nb::object index)
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        const Slot s = find(slot, index);
        void *memory;
        nb::object copy = s.empty(&memory);
        if (s.is_host)
            memcpy(memory, s.data, s.size());
        else
            work([&] { return sut_context_download(context->ctx, memory, s.data, s.size()); });
        return copy;
    }

    /* array: of NumPy, of the state's shape and type. */
    void write_state(const char *slot, nb::object index, nb::object array)
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        const Slot s = find(slot, index);
        const std::vector<char> contents = s.contents(slot, array);
        if (s.is_host)
            memcpy(s.data, contents.data(), contents.size());
        else
            work([&] { return sut_context_upload(context->ctx, s.data, contents.data(), contents.size()); });
    }

    nb::tuple state_names() const
    {
        nb::list names;
        for (int k = 0; const char *name = sut_optimizer_state_name(alive(), k); k++)
            names.append(name);
        return nb::tuple(names);
    }

    /* Counts are kept on the device, which is asked and waited for. */
    int64_t steps()
    {
        const Counting counting(*this);
        return sut_optimizer_steps(alive());
    }
    int64_t tensor_steps(nb::object index)
    {
        const int64_t k = index_of("tensor", index, (int64_t)tensors.size());
        const Counting counting(*this);
        return sut_optimizer_tensor_steps(alive(), k);
    }
    int64_t skipped_steps()
    {
        const Counting counting(*this);
        return sut_optimizer_skipped_steps(alive());
    }
    /* The surgery divides by the values of the losses. */
    bool needs_losses() const
    {
        const sut_surgery_config surgery = in_force().surgery;
        return surgery.method == SUT_SURGERY_MGDA &&
               (surgery.mgda_normalisation == SUT_MGDA_LOSS || surgery.mgda_normalisation == SUT_MGDA_LOSS_PLUS);
    }
    /* Names of the surgery and of the alignment. */
    nb::tuple methods() const
    {
        const sut_optimizer_config c = in_force();
        return nb::make_tuple(sut_surgery_method_name(c.surgery.method), sut_align_name(c.align));
    }
    /* The number of the parameters' CUDA device; None for the CPU. */
    nb::object device() const
    {
        return context->on_cuda() ? nb::object(nb::int_(context->settings.device)) : nb::none();
    }
    int losses() const
    {
        return m;
    }
    int64_t current_generation() const
    {
        return generation;
    }
    int threads() const
    {
        return sut_context_threads(context->ctx);
    }
    nb::tuple memory() const
    {
        size_t state = 0, workspace = 0;
        check(sut_optimizer_memory(alive(), &state, &workspace), context->ctx);
        return nb::make_tuple(state, workspace);
    }

    nb::tuple tensor_names() const
    {
        nb::list names;
        for (const Parameter &p : tensors.parameters())
            names.append(p.name);
        return nb::tuple(names);
    }

    /* Called with the list of tensors after each step: PyTorch counts changes of a tensor's memory. */
    void after_step(nb::object function, nb::object list)
    {
        bump = function;
        bumped = list;
    }

    int traverse(visitproc visit, void *arg)
    {
        if (const int stop = tensors.traverse(visit, arg))
            return stop;
        Py_VISIT(bump.ptr());
        Py_VISIT(bumped.ptr());
        return 0;
    }

    void clear()
    {
        engine.reset();
        opt = nullptr;
        tensors.clear();
        bump.reset();
        bumped.reset();
    }

  private:
    /* One call: gives back at its end, however it ends, what it looked at. */
    struct Call {
        Optimizer &self;
        /* waits: on a device, for what the call gives to the host. */
        explicit Call(Optimizer &of, bool waits = true) : self(of)
        {
            (void)self.alive();
            self.waits = waits;
        }
        ~Call()
        {
            self.tensors.release();
        }
        Call(const Call &) = delete;
        Call &operator=(const Call &) = delete;
    };

    /* Asking a device for counts changes what the library keeps of them: one thread at a time. On the CPU nothing does. */
    struct Counting {
        Optimizer &self;
        const bool locks;
        explicit Counting(Optimizer &of) : self(of), locks(of.context->on_cuda() && !of.gate.is_mine())
        {
            if (locks)
                self.gate.lock();
        }
        ~Counting()
        {
            if (locks)
                self.gate.unlock();
        }
        Counting(const Counting &) = delete;
        Counting &operator=(const Counting &) = delete;
    };

    Slot find(const char *slot, nb::handle index)
    {
        const int64_t k = index_of("tensor", index, (int64_t)tensors.size());
        (void)alive();
        return Slot(*engine, slot, k, tensors[(size_t)k].layout);
    }

    /* In this scope work() releases the interpreter lock however small the optimizer is: files take long. */
    struct Unlocking {
        Optimizer &self;
        explicit Unlocking(Optimizer &of) : self(of)
        {
            self.slow = true;
        }
        ~Unlocking()
        {
            self.slow = false;
        }
        Unlocking(const Unlocking &) = delete;
        Unlocking &operator=(const Unlocking &) = delete;
    };

    sut_optimizer *alive() const
    {
        if (!opt)
            raise(SUT_ERROR_SEQUENCE, "this optimizer was taken apart by the garbage collector");
        return opt;
    }

    /* Names for suggestions. */
    nb::list known_options() const
    {
        const nb::module_ own = nb::module_::import_("suture._suture");
        nb::list known = nb::list(nb::object(own.attr("surgery_options")));
        known.extend(nb::list(nb::object(own.attr("optimizer_options"))));
        sut_parameter_info info;
        for (int j = 0; sut_optimizer_parameter(method, j, &info) == SUT_OK; j++) {
            known.append(info.name);
            if (!strcmp(info.name, "beta1"))
                known.append("betas");
        }
        return known;
    }

    int group_index(nb::object index) const
    {
        return (int)index_of("group", index, (int64_t)hyper.size());
    }

    /* A call that waits for a device gives the interpreter lock away, one that only queues work does not. */
    bool unlocks() const
    {
        return slow || (context->on_cuda() ? waits : !tensors.is_small());
    }

    /* The library at work; its refusal becomes an exception. */
    template <typename F> void work(F function)
    {
        sut_status status;
        if (unlocks()) {
            const Unlocked unlocked;
            status = function();
        } else {
            status = function();
        }
        check(status, context->ctx);
    }

    static void *const *pointers(const std::vector<void *> &list)
    {
        return list.empty() ? nullptr : list.data();
    }
    const double *values() const
    {
        return loss_values.empty() ? nullptr : loss_values.data();
    }

    /* An engine for the tensors as they are, with a new state. */
    std::shared_ptr<Engine> make_engine(const std::shared_ptr<Context> &in)
    {
        const std::vector<sut_tensor> list = tensors.descriptions();
        std::vector<const char *> names;
        for (const std::string &name : names_of_losses)
            names.push_back(name.c_str());
        sut_optimizer_config c = config;
        c.tensors = list.data();
        c.n_tensors = (int64_t)list.size();
        c.groups = hyper.data();
        c.n_groups = (int)hyper.size();
        c.n_losses = m;
        c.loss_names = names.empty() ? nullptr : names.data();
        auto made = std::make_shared<Engine>();
        made->context = in;
        made->streams_may_end = in->on_cuda() && !tensors.of_torch();
        sut_status status = sut_optimizer_create(&made->opt, in->ctx, &c);
        if (status == SUT_ERROR_OUT_OF_MEMORY && in->on_cuda()) { /* PyTorch may keep what it does not use */
            cuda_function("empty_cache")();
            status = sut_optimizer_create(&made->opt, in->ctx, &c);
        }
        check(status, in->ctx);
        return made;
    }

    void use(const std::shared_ptr<Engine> &made)
    {
        engine = made;
        context = made->context;
        opt = made->opt;
        tensors.told();
        generation++;
    }

    /* Memory of parameters moved: an engine for where they are now, with the state so far. A failure leaves the old one, which
     * has been told other addresses: the next call comes here again. */
    void replace_engine(const std::shared_ptr<Context> &in)
    {
        const nb::bytes kept = bytes(false);
        const Masters kept_masters = read_masters(opt, tensors);
        const std::shared_ptr<Engine> made = make_engine(in);
        const sut_checkpoint_config c = checkpoint(false, true);
        check(sut_optimizer_load_memory(made->opt, kept.c_str(), kept.size(), &c), in->ctx);
        restore_masters(made->opt, tensors, kept_masters);
        use(made);
    }

    /* The stream that the parameters' library works on now. */
    int64_t stream()
    {
        if (tensors.device() == View::CPU)
            return 0;
        if (tensors.of_torch())
            tensors.set_stream(current_stream(tensors.device()));
        return tensors.stream();
    }
    std::string whose() const
    {
        return "parameter '" + tensors.parameters()[0].name + "'";
    }

    /* Look at everything; memory of parameters that moved is taken over, to another device, too. */
    void look(bool unlocking = false)
    {
        if (!context->on_cuda()) { /* as a rule that is all */
            const bool elsewhere = tensors.look(unlocking || unlocks());
            if (!elsewhere && tensors.device() == View::CPU)
                return;
            tensors.release_looked();
        }
        std::shared_ptr<Context> in = context;
        bool moved;
        for (;;) {
            if (in->on_cuda())
                (void)stream();
            moved = tensors.look(unlocking || unlocks());
            if (tensors.device() == in->settings.device && !(moved && in->on_cuda() && in == context))
                break;
            /* A context of its own for the new engine. Python code may run here: once more. */
            tensors.release_looked();
            ContextSettings settings = in->settings;
            settings.device = tensors.device();
            settings.stream = stream();
            in = std::make_shared<Context>();
            in->open(settings, whose());
        }
        if (in->on_cuda())
            in->follow(tensors.stream());
        if (moved || in != context)
            replace_engine(in);
    }

    void read_losses(nb::object losses)
    {
        loss_values = numbers("losses", losses, m);
    }

    nb::object run(bool want_report)
    {
        look();
        std::unique_ptr<Report> report(want_report ? new Report : nullptr);
        work([&] { return sut_optimizer_step(opt, tensors.gradients(), values(), report ? &report->r : nullptr); });
        parameters_were_written();
        return report ? nb::cast(report.release(), nb::rv_policy::take_ownership) : nb::none();
    }

    void parameters_were_written()
    {
        if (!bump.is_valid())
            return;
        PyObject *none = PyObject_CallFunctionObjArgs(bump.ptr(), bumped.ptr(), nullptr);
        if (!none)
            throw nb::python_error();
        Py_DECREF(none);
    }

    /* An object that cannot change inside. */
    static bool is_fixed(PyObject *value)
    {
        if (!PyTuple_Check(value))
            return PyFloat_Check(value) || PyLong_Check(value);
        for (Py_ssize_t j = 0; j < PyTuple_Size(value); j++)
            if (!PyFloat_Check(PyTuple_GetItem(value, j)) && !PyLong_Check(PyTuple_GetItem(value, j)))
                return false;
        return true;
    }

    /* True when a value of the group is not the object that was last seen, or may have changed inside. */
    bool remember(int k, nb::dict group)
    {
        std::vector<nb::object> &old = remembered[(size_t)k];
        if (keys.empty()) {
            sut_parameter_info info;
            keys.push_back(nb::steal<nb::str>(PyUnicode_InternFromString("betas")));
            for (int j = 0; sut_optimizer_parameter(method, j, &info) == SUT_OK; j++)
                keys.push_back(nb::steal<nb::str>(PyUnicode_InternFromString(info.name)));
        }
        const bool first = old.size() != keys.size();
        if (first)
            old.assign(keys.size(), nb::object());
        bool changed = first;
        for (size_t j = 0; j < keys.size(); j++) {
            PyObject *value = PyDict_GetItemWithError(group.ptr(), keys[j].ptr());
            if (!value && PyErr_Occurred())
                throw nb::python_error();
            if (value == old[j].ptr() && (!value || is_fixed(value)))
                continue;
            changed = true;
            old[j] = nb::borrow(value);
        }
        return changed;
    }

    static sut_checkpoint_config checkpoint(bool include_parameters, bool restore_settings)
    {
        sut_checkpoint_config c;
        sut_checkpoint_config_init(&c);
        c.include_parameters = include_parameters;
        c.restore_settings = restore_settings;
        return c;
    }

    nb::bytes bytes(bool include_parameters)
    {
        const sut_checkpoint_config c = checkpoint(include_parameters, true);
        void *data = nullptr;
        size_t size = 0;
        work([&] { return sut_optimizer_save_memory(opt, &c, &data, &size); });
        nb::bytes result(static_cast<const char *>(data), size);
        sut_buffer_free(context->ctx, data);
        return result;
    }

    /* Settings as they are after loads and changes. */
    sut_optimizer_config in_force() const
    {
        sut_optimizer_config c;
        sut_optimizer_config_init(&c, config.method);
        (void)sut_optimizer_get_config(opt, &c);
        return c;
    }

    void after_load(bool include_parameters)
    {
        for (size_t k = 0; k < hyper.size(); k++) {
            (void)sut_optimizer_get_hyper(opt, (int)k, &hyper[k]);
            remembered[k].clear();
        }
        if (include_parameters)
            parameters_were_written();
    }

    Gate gate;
    std::shared_ptr<Context> context = std::make_shared<Context>();
    std::shared_ptr<Engine> engine;
    sut_optimizer *opt = nullptr; /* that of the engine */
    int64_t generation = 0;       /* grows when the engine is another one */
    sut_optimizer_method method;
    sut_optimizer_config config;
    SurgeryArrays arrays;
    int m;
    std::vector<sut_hyper> hyper;
    std::vector<std::string> names_of_losses;
    Tensors tensors;
    std::vector<double> loss_values;
    bool slow = false;  /* see Unlocking */
    bool waits = false; /* see Call */
    std::vector<nb::str> keys;
    std::vector<std::vector<nb::object>> remembered; /* values of the groups, by key */
    std::vector<Py_ssize_t> sizes;                   /* numbers of their keys: new ones are looked at */
    nb::object bump, bumped;
};

/* Optimizers and their arrays can be parts of reference cycles (a hook of a tensor that holds the optimizer). */
static int traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self))
        return 0;
    return nb::inst_ptr<Optimizer>(self)->traverse(visit, arg);
}

static int clear(PyObject *self)
{
    if (nb::inst_ready(self))
        nb::inst_ptr<Optimizer>(self)->clear();
    return 0;
}

static PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void *>(traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(clear)},
    {0, nullptr},
};

void add_optimizer(nb::module_ &module)
{
    nb::class_<Turn>(module, "Turn", "One thread at a time; the thread that is inside may enter again.")
        .def(nb::init<>())
        .def("enter", &Turn::enter)
        .def("leave", &Turn::leave);
    nb::class_<Optimizer>(module, "Optimizer", nb::type_slots(slots))
        .def(nb::init<nb::object, nb::list, nb::list, nb::object, nb::object, nb::object, nb::dict, nb::object,
                      nb::object, nb::object>(),
             nb::arg("method").none(), nb::arg("tensors"), nb::arg("groups"), nb::arg("n_losses").none(),
             nb::arg("loss_names").none(), nb::arg("surgery").none(), nb::arg("options"), nb::arg("threads").none(),
             nb::arg("seed").none(), nb::arg("isa").none(),
             nb::sig("def __init__(self, method: object, tensors: list[tuple[str, typing.Any, int]], "
                     "groups: list[dict[str, typing.Any]], n_losses: object, loss_names: object, surgery: object, "
                     "options: dict[str, typing.Any], threads: object, seed: object, isa: object) -> None"))
        .def("step", &Optimizer::step, nb::arg("rows").none(), nb::arg("losses").none(), nb::arg("report"),
             nb::sig("def step(self, rows: object, losses: object, report: bool) -> Report | None"))
        .def("step_grad", &Optimizer::step_grad, nb::arg("report"),
             nb::sig("def step_grad(self, report: bool) -> Report | None | typing.Literal[False]"))
        .def("direction", &Optimizer::direction, nb::arg("rows").none(), nb::arg("losses").none(),
             nb::arg("out").none(),
             nb::sig("def direction(self, rows: object, losses: object, out: object) -> tuple[float, ...]"))
        .def("propose", &Optimizer::propose, nb::arg("rows").none(), nb::arg("losses").none(), nb::arg("u_out").none(),
             nb::arg("inverse_metric_out").none())
        .def("project", &Optimizer::project, nb::arg("rows").none(), nb::arg("p_out").none(),
             nb::sig("def project(self, rows: object, p_out: object) -> Report"))
        .def("apply", &Optimizer::apply, nb::arg("rows").none(), nb::arg("p").none(), nb::arg("report"),
             nb::sig("def apply(self, rows: object, p: object, report: bool) -> Report | None"))
        .def("fits", &Optimizer::fits, nb::sig("def fits(self, groups: list[dict[str, typing.Any]], /) -> bool"))
        .def("follow", &Optimizer::follow,
             nb::sig("def follow(self, groups: list[dict[str, typing.Any]], n_losses: int, /) -> bool"))
        .def("set_group", nb::overload_cast<nb::object, nb::dict>(&Optimizer::set_group), nb::arg("index").none(),
             nb::arg("group"), nb::sig("def set_group(self, index: object, group: dict[str, typing.Any]) -> None"))
        .def("group", &Optimizer::group, nb::arg("index").none(),
             nb::sig("def group(self, index: object) -> dict[str, typing.Any]"))
        .def("set_lr", &Optimizer::set_lr, nb::arg("lr").none())
        .def("set_align", &Optimizer::set_align, nb::arg("align").none(), nb::arg("rho_m").none(),
             nb::arg("rho_v").none())
        .def("synchronize", &Optimizer::synchronize)
        .def("parameters_changed", &Optimizer::parameters_changed)
        .def("save", &Optimizer::save, nb::arg("path"), nb::arg("include_parameters"))
        .def("load", &Optimizer::load, nb::arg("path"), nb::arg("include_parameters"), nb::arg("restore_settings"))
        .def("to_bytes", &Optimizer::to_bytes, nb::arg("include_parameters"))
        .def("from_bytes", &Optimizer::from_bytes, nb::arg("data"), nb::arg("include_parameters"),
             nb::arg("restore_settings"))
        .def("state", &Optimizer::state, nb::arg("slot"), nb::arg("index").none(),
             nb::sig("def state(self, slot: str, index: object) -> typing.Any"))
        .def("read_state", &Optimizer::read_state, nb::arg("slot"), nb::arg("index").none(),
             nb::sig("def read_state(self, slot: str, index: object) -> typing.Any"))
        .def("write_state", &Optimizer::write_state, nb::arg("slot"), nb::arg("index").none(), nb::arg("array"),
             nb::sig("def write_state(self, slot: str, index: object, array: object) -> None"))
        .def("state_names", &Optimizer::state_names, nb::sig("def state_names(self) -> tuple[str, ...]"))
        .def("tensor_steps", &Optimizer::tensor_steps, nb::arg("index").none())
        .def("tensor_names", &Optimizer::tensor_names, nb::sig("def tensor_names(self) -> tuple[str, ...]"))
        .def("after_step", &Optimizer::after_step)
        .def_prop_ro("steps", &Optimizer::steps)
        .def_prop_ro("skipped_steps", &Optimizer::skipped_steps)
        .def_prop_ro("needs_losses", &Optimizer::needs_losses)
        .def_prop_ro("methods", &Optimizer::methods, nb::sig("def methods(self) -> tuple[str, str]"))
        .def_prop_ro("device", &Optimizer::device, nb::sig("def device(self) -> int | None"))
        .def_prop_ro("n_losses", &Optimizer::losses)
        .def_prop_ro("generation", &Optimizer::current_generation)
        .def_prop_ro("threads", &Optimizer::threads)
        .def_prop_ro("memory", &Optimizer::memory, nb::sig("def memory(self) -> tuple[int, int]"));
}

} // namespace suture_python
