/*
 * See optimizer.h. What a step costs beyond the library's own time matters here: a training loop of a small network calls it
 * a hundred thousand times. So the pointers of all arrays are collected in one loop in C++, hyper-parameters are compared by
 * identity, and a report is made only when it is wanted.
 *
 * Before each step every parameter is looked at again: its memory may have been replaced (module.to(), p.data = ...), and a
 * pointer into freed memory must never reach the library. Replaced memory of the same shape and type is taken over.
 */
#include "optimizer.h"

#include "array.h"
#include "context.h"
#include "gate.h"
#include "report.h"
#include "rounding.h"
#include "settings.h"
#include "unlocked.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <mutex>

namespace suture_python
{

namespace
{

/* Entry k of a list or tuple, borrowed. */
PyObject *item(PyObject *sequence, Py_ssize_t k)
{
    return PyList_Check(sequence) ? PyList_GetItem(sequence, k) : PyTuple_GetItem(sequence, k);
}

bool is_list(PyObject *object)
{
    return PyList_Check(object) || PyTuple_Check(object);
}

} // namespace

/*
 * The library's objects alone. Views of the state hold on to this and not to the arrays, so that they do not hide a reference
 * cycle through the arrays from the garbage collector.
 */
struct Engine {
    std::shared_ptr<Context> context;
    sut_optimizer *opt = nullptr;
    ~Engine()
    {
        sut_optimizer_destroy(opt);
    }
};

class Optimizer
{
  public:
    Optimizer(const char *method_name, nb::list tensors, nb::list groups, int n_losses, nb::object loss_names,
              const char *surgery, nb::dict options, int threads, uint64_t seed, const char *isa)
        : method(optimizer_method(method_name)), m(n_losses)
    {
        context->open(context_settings(threads, seed, isa));
        for (nb::handle entry : tensors) {
            nb::tuple t = nb::cast<nb::tuple>(entry);
            param p;
            p.name = nb::cast<std::string>(t[0]);
            p.array = t[1];
            p.group = nb::cast<int>(t[2]);
            params.push_back(std::move(p));
        }
        grad_name = nb::steal<nb::str>(PyUnicode_InternFromString("grad"));
        for (nb::handle entry : groups) {
            sut_hyper h;
            check(sut_hyper_init(&h, method), context->ctx);
            read_hyper(nb::cast<nb::dict>(entry), method, &h, context->ctx);
            hyper.push_back(h);
            remembered.emplace_back();
        }
        sut_optimizer_config_init(&config, method);
        sut_surgery_config_init(&config.surgery, surgery_method(surgery));
        nb::dict left = copy_of(options);
        read_surgery(left, m, &config.surgery, &arrays);
        read_optimizer(left, &config);
        nb::module_ own = nb::module_::import_("suture._suture");
        nb::list known = nb::list(nb::object(own.attr("surgery_options")));
        known.extend(nb::list(nb::object(own.attr("optimizer_options"))));
        nb::dict table = nb::cast<nb::dict>(own.attr("optimizer_methods"));
        known.extend(nb::list(nb::object(table[method_name])));
        refuse_unknown(left, method_name, known);
        if (!loss_names.is_none())
            for (nb::handle x : nb::list(loss_names))
                names_of_losses.push_back(nb::cast<std::string>(x));
        if (!names_of_losses.empty() && (int)names_of_losses.size() != m)
            raise(SUT_ERROR_INVALID_ARGUMENT, "loss_names must have one name per loss");
        look_at_parameters();
        create();
        grads.resize((size_t)m * params.size());
        copies.resize(grads.size());
    }

    /* rows: a list of n_losses lists with one gradient (or None) per tensor. */
    nb::object step(nb::object rows, nb::object losses, bool want_report)
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        collect(rows);
        return run(losses, want_report);
    }

    /* One loss: the gradients are the tensors' attributes `grad`. */
    nb::object step_grad(bool want_report)
    {
        std::lock_guard<Gate> lock(gate);
        if (m != 1)
            raise(SUT_ERROR_INVALID_ARGUMENT, "this optimizer has several losses");
        const Call call(*this);
        collect_attributes();
        return run(nb::none(), want_report);
    }

    /* Weights of the coming step and the direction that they make. */
    nb::object direction(nb::object rows, nb::object losses, nb::object out)
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        collect(rows);
        read_losses(losses);
        std::vector<double> w((size_t)m);
        std::unique_ptr<View[]> views;
        const std::vector<void *> a = outputs(out, views);
        sut_status status;
        {
            const Unlocked unlocked;
            status = sut_optimizer_direction(opt, grads.data(), loss_values.empty() ? nullptr : loss_values.data(),
                                             w.data(), a.empty() ? nullptr : a.data());
        }
        check(status, context->ctx);
        nb::list result;
        for (double x : w)
            result.append(x);
        return nb::tuple(result);
    }

    /* Hyper-parameters of one group, as they are now in `group`. Does nothing when no value was replaced. */
    void set_group(int k, nb::dict group)
    {
        if (!remember(k, group))
            return;
        std::lock_guard<Gate> lock(gate);
        sut_hyper h;
        check(sut_optimizer_get_hyper(opt, k, &h), context->ctx);
        try {
            read_hyper(group, method, &h, context->ctx);
            check(sut_optimizer_set_hyper(opt, k, &h), context->ctx);
        } catch (...) {
            remembered[(size_t)k].clear();
            throw;
        }
        hyper[(size_t)k] = h;
    }

    nb::dict group(int k)
    {
        std::lock_guard<Gate> lock(gate);
        sut_hyper h;
        check(sut_optimizer_get_hyper(opt, k, &h), context->ctx);
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

    void set_lr(double lr, int k)
    {
        std::lock_guard<Gate> lock(gate);
        check(sut_optimizer_set_lr(opt, k, lr), context->ctx);
        for (size_t j = 0; j < remembered.size(); j++)
            if (k < 0 || (size_t)k == j)
                remembered[j].clear();
    }

    void set_align(const char *align, double rho_m, double rho_v)
    {
        std::lock_guard<Gate> lock(gate);
        nb::dict options;
        options["align"] = align;
        sut_optimizer_config c = config;
        read_optimizer(options, &c);
        check(sut_optimizer_set_align(opt, c.align, rho_m, rho_v), context->ctx);
        config.align = c.align;
        config.rho_m = rho_m;
        config.rho_v = rho_v;
    }

    void parameters_changed()
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        const std::vector<std::vector<float>> kept = masters();
        check(sut_optimizer_parameters_changed(opt), context->ctx);
        restore_masters(kept);
    }

    void save(const char *path, bool include_parameters)
    {
        std::lock_guard<Gate> lock(gate);
        sut_checkpoint_config c = checkpoint(include_parameters, true);
        const Call call(*this);
        sut_status status;
        {
            const Unlocked unlocked;
            status = sut_optimizer_save(opt, path, &c);
        }
        check(status, context->ctx);
    }

    void load(const char *path, bool include_parameters, bool restore_settings)
    {
        std::lock_guard<Gate> lock(gate);
        sut_checkpoint_config c = checkpoint(include_parameters, restore_settings);
        const Call call(*this);
        sut_status status;
        {
            const Unlocked unlocked;
            status = sut_optimizer_load(opt, path, &c);
        }
        check(status, context->ctx);
        after_load(include_parameters);
    }

    nb::bytes to_bytes(bool include_parameters)
    {
        std::lock_guard<Gate> lock(gate);
        const Call call(*this);
        return bytes(include_parameters);
    }

    void from_bytes(nb::bytes data, bool include_parameters, bool restore_settings)
    {
        std::lock_guard<Gate> lock(gate);
        sut_checkpoint_config c = checkpoint(include_parameters, restore_settings);
        const Call call(*this);
        check(sut_optimizer_load_memory(opt, data.data(), data.size(), &c), context->ctx);
        after_load(include_parameters);
    }

    /* These groups have the tensors of this optimizer, each in its place. */
    bool fits(nb::list groups) const
    {
        if (nb::len(groups) != hyper.size())
            return false;
        size_t k = 0;
        for (size_t g = 0; g < hyper.size(); g++) {
            const nb::object given = groups[g]["params"];
            const nb::list tensors = PyList_Check(given.ptr()) ? nb::borrow<nb::list>(given) : nb::list(given);
            for (nb::handle tensor : tensors) {
                if (k == params.size() || tensor.ptr() != params[k].array.ptr() || params[k].group != (int)g)
                    return false;
                k++;
            }
        }
        return k == params.size();
    }

    /* State of one tensor: the library's own memory, in the shape of the tensor. */
    nb::object state(const char *slot, int64_t k)
    {
        std::lock_guard<Gate> lock(gate);
        void *data;
        sut_dtype dtype;
        int64_t count;
        check(sut_optimizer_state(opt, slot, k, &data, &dtype, &count), context->ctx);
        const Layout &l = params[(size_t)k].layout;
        nb::capsule self(new std::shared_ptr<Engine>(engine),
                         [](void *p) noexcept { delete static_cast<std::shared_ptr<Engine> *>(p); });
        if (count != l.count) { /* one number for the whole tensor */
            size_t one = (size_t)count;
            return dtype == SUT_DTYPE_F64
                       ? nb::cast(nb::ndarray<nb::numpy, double>(data, 1, &one, self), nb::rv_policy::reference)
                       : nb::cast(nb::ndarray<nb::numpy, float>(data, 1, &one, self), nb::rv_policy::reference);
        }
        size_t shape[SUT_MAX_DIMS];
        int64_t strides[SUT_MAX_DIMS];
        for (int d = 0; d < l.n_dims; d++) {
            shape[d] = (size_t)l.shape[d];
            strides[d] = l.stride[d] / (int64_t)sut_dtype_size(l.dtype);
        }
        return dtype == SUT_DTYPE_F64
                   ? nb::cast(nb::ndarray<nb::numpy, double>(data, (size_t)l.n_dims, shape, self, strides),
                              nb::rv_policy::reference)
                   : nb::cast(nb::ndarray<nb::numpy, float>(data, (size_t)l.n_dims, shape, self, strides),
                              nb::rv_policy::reference);
    }

    nb::tuple state_names() const
    {
        nb::list names;
        for (int k = 0; const char *name = sut_optimizer_state_name(opt, k); k++)
            names.append(name);
        return nb::tuple(names);
    }

    int64_t steps() const
    {
        return sut_optimizer_steps(opt);
    }
    int64_t tensor_steps(int64_t k) const
    {
        return sut_optimizer_tensor_steps(opt, k);
    }
    int64_t skipped_steps() const
    {
        return sut_optimizer_skipped_steps(opt);
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
        check(sut_optimizer_memory(opt, &state, &workspace), context->ctx);
        return nb::make_tuple(state, workspace);
    }

    nb::tuple tensor_names() const
    {
        nb::list names;
        for (const param &p : params)
            names.append(p.name);
        return nb::tuple(names);
    }

    /* Called with the list of tensors after each step: PyTorch counts changes of a tensor's memory. */
    void after_step(nb::object function, nb::object tensors)
    {
        bump = function;
        bumped = tensors;
    }

    int traverse(visitproc visit, void *arg)
    {
        for (const param &p : params)
            Py_VISIT(p.array.ptr());
        Py_VISIT(bump.ptr());
        Py_VISIT(bumped.ptr());
        return 0;
    }

    void clear()
    {
        engine.reset();
        opt = nullptr;
        for (param &p : params)
            p.array.reset();
        bump.reset();
        bumped.reset();
    }

  private:
    struct param {
        std::string name;
        nb::object array;
        int group = 0;
        Layout layout;
        void *data = nullptr;
    };

    /* First look at the parameters: types, layouts, pointers. */
    void look_at_parameters()
    {
        for (param &p : params) {
            View view;
            view.open(p.array.ptr(), "parameter '" + p.name + "'", true);
            if (!p.layout.from(view)) {
                PyErr_Format(PyExc_ValueError,
                             "parameter '%s' (shape %s) has gaps in its memory, overlaps itself or is not aligned; a "
                             "contiguous array is needed",
                             p.name.c_str(), shape_text(view.n_dims, view.shape).c_str());
                throw nb::python_error();
            }
            p.data = view.count ? view.data : nullptr;
        }
    }

    void create()
    {
        std::vector<sut_tensor> tensors(params.size());
        for (size_t k = 0; k < params.size(); k++) {
            const param &p = params[k];
            sut_tensor &t = tensors[k];
            t = sut_tensor{};
            t.data = p.data;
            t.dtype = p.layout.dtype;
            t.n_dims = p.layout.n_dims;
            std::copy(p.layout.memory_shape, p.layout.memory_shape + t.n_dims, t.shape);
            t.group = p.group;
            t.name = p.name.c_str();
        }
        std::vector<const char *> names;
        for (const std::string &name : names_of_losses)
            names.push_back(name.c_str());
        sut_optimizer_config c = config;
        c.tensors = tensors.data();
        c.n_tensors = (int64_t)tensors.size();
        c.groups = hyper.data();
        c.n_groups = (int)hyper.size();
        c.n_losses = m;
        c.loss_names = names.empty() ? nullptr : names.data();
        auto made = std::make_shared<Engine>();
        made->context = context;
        check(sut_optimizer_create(&made->opt, context->ctx, &c), context->ctx);
        engine = made;
        opt = made->opt;
        generation++;
    }

    /* Look at every parameter again; memory that moved is taken over. */
    void begin()
    {
        if (!opt)
            raise(SUT_ERROR_SEQUENCE, "this optimizer was taken apart by the garbage collector");
        bool moved = false;
        for (param &p : params) {
            View view;
            if (!view.try_open(p.array.ptr(), true))
                view.open(p.array.ptr(), "parameter '" + p.name + "'", true);
            if (view.data == p.data && view.dtype == p.layout.dtype && p.layout.same_shape(view) &&
                p.layout.matches(view)) {
                view.give(held);
                continue;
            }
            if (view.count == 0 && p.layout.count == 0)
                continue;
            if (view.dtype != p.layout.dtype || !p.layout.same_shape(view) || !p.layout.matches(view)) {
                PyErr_Format(PyExc_ValueError,
                             "parameter '%s' was %s of shape %s when the optimizer was made and is now %s of shape %s "
                             "or lies differently in memory; make a new optimizer",
                             p.name.c_str(), dtype_text(p.layout.dtype),
                             shape_text(p.layout.n_dims, p.layout.shape).c_str(), dtype_text(view.dtype),
                             shape_text(view.n_dims, view.shape).c_str());
                throw nb::python_error();
            }
            moved = true;
        }
        if (!moved)
            return;
        for (param &p : params) {
            View view;
            view.open(p.array.ptr(), "parameter '" + p.name + "'", true);
            p.data = view.count ? view.data : nullptr;
            view.give(held);
        }
        const nb::bytes kept = bytes(false);
        const std::vector<std::vector<float>> kept_masters = masters();
        try {
            create();
        } catch (...) { /* the engine still has the old pointers: the next call must come here again */
            for (param &p : params)
                p.data = nullptr;
            throw;
        }
        const sut_checkpoint_config c = checkpoint(false, true);
        check(sut_optimizer_load_memory(opt, kept.data(), kept.size(), &c), context->ctx);
        restore_masters(kept_masters);
    }

    /* The f32 master copy of parameter k, NULL when it has none. */
    float *master(size_t k)
    {
        void *data = nullptr;
        const sut_dtype dtype = params[k].layout.dtype;
        if (dtype == SUT_DTYPE_BF16 || dtype == SUT_DTYPE_F16)
            check(sut_optimizer_state(opt, "master", (int64_t)k, &data, nullptr, nullptr), context->ctx);
        return static_cast<float *>(data);
    }

    std::vector<std::vector<float>> masters()
    {
        std::vector<std::vector<float>> all(params.size());
        for (size_t k = 0; k < params.size(); k++)
            if (const float *from = master(k))
                all[k].assign(from, from + params[k].layout.count);
        return all;
    }

    /* An element that still is the rounding of its old master copy was not written to from outside: the copy's further
     * digits are taken back. */
    void restore_masters(const std::vector<std::vector<float>> &old)
    {
        for (size_t k = 0; k < params.size(); k++) {
            float *const to = master(k);
            if (!to)
                continue;
            const uint16_t *const now = static_cast<const uint16_t *>(params[k].data);
            const bool bf16 = params[k].layout.dtype == SUT_DTYPE_BF16;
            for (size_t j = 0; j < old[k].size(); j++)
                if ((bf16 ? to_bf16(old[k][j]) : to_f16(old[k][j])) == now[j])
                    to[j] = old[k][j];
        }
    }

    std::string gradient_name(int i, size_t k) const
    {
        std::string loss = names_of_losses.empty() ? std::to_string(i) : "'" + names_of_losses[(size_t)i] + "'";
        return m == 1 ? "the gradient of '" + params[k].name + "'"
                      : "the gradient of loss " + loss + " in '" + params[k].name + "'";
    }

    void collect_one(int i, size_t k, PyObject *gradient)
    {
        const size_t at = (size_t)i * params.size() + k;
        grads[at] = nullptr;
        if (gradient == Py_None)
            return;
        const param &p = params[k];
        View view;
        if (!view.try_open(gradient, false))
            view.open(gradient, gradient_name(i, k), false);
        if (view.dtype != p.layout.dtype || !p.layout.same_shape(view)) {
            const bool type = view.dtype != p.layout.dtype;
            PyErr_Format(type ? PyExc_TypeError : PyExc_ValueError,
                         "%s is %s of shape %s, the parameter %s of shape %s", gradient_name(i, k).c_str(),
                         dtype_text(view.dtype), shape_text(view.n_dims, view.shape).c_str(),
                         dtype_text(p.layout.dtype), shape_text(p.layout.n_dims, p.layout.shape).c_str());
            throw nb::python_error();
        }
        if (p.layout.matches(view)) {
            grads[at] = view.data;
            view.give(held);
            return;
        }
        std::vector<char> &copy = copies[at];
        copy.resize((size_t)view.count * sut_dtype_size(view.dtype));
        p.layout.gather(view, copy.data());
        grads[at] = copy.data();
    }

    void collect(nb::object rows)
    {
        PyObject *outer = rows.ptr();
        if (!is_list(outer) || PySequence_Size(outer) != m) {
            PyErr_Format(PyExc_ValueError, "gradients of %d loss%s are needed: a list of %d lists", m,
                         m == 1 ? "" : "es", m);
            throw nb::python_error();
        }
        for (int i = 0; i < m; i++) {
            PyObject *row = item(outer, i);
            if (!row || !is_list(row) || PySequence_Size(row) != (Py_ssize_t)params.size()) {
                PyErr_Clear();
                PyErr_Format(PyExc_ValueError,
                             "the gradients of loss %d are not a list with one entry per tensor (%d; None: absent)", i,
                             (int)params.size());
                throw nb::python_error();
            }
            for (size_t k = 0; k < params.size(); k++)
                collect_one(i, k, item(row, (Py_ssize_t)k));
        }
    }

    void collect_attributes()
    {
        for (size_t k = 0; k < params.size(); k++) {
            PyObject *gradient = PyObject_GetAttr(params[k].array.ptr(), grad_name.ptr());
            if (!gradient)
                throw nb::python_error();
            held.add(gradient);
            collect_one(0, k, gradient);
        }
    }

    void read_losses(nb::object losses)
    {
        loss_values.clear();
        if (losses.is_none())
            return;
        for (nb::handle x : nb::list(losses)) {
            loss_values.push_back(PyFloat_AsDouble(x.ptr()));
            if (PyErr_Occurred())
                throw nb::python_error();
        }
        if ((int)loss_values.size() != m)
            raise(SUT_ERROR_INVALID_ARGUMENT, ("losses has " + std::to_string(loss_values.size()) +
                                               " entries, the optimizer has " + std::to_string(m) + " losses")
                                                  .c_str());
    }

    nb::object run(nb::object losses, bool want_report)
    {
        read_losses(losses);
        std::unique_ptr<Report> report(want_report ? new Report : nullptr);
        sut_status status;
        {
            const Unlocked unlocked;
            status = sut_optimizer_step(opt, grads.data(), loss_values.empty() ? nullptr : loss_values.data(),
                                        report ? &report->r : nullptr);
        }
        check(status, context->ctx);
        if (bump.is_valid()) {
            PyObject *none = PyObject_CallFunctionObjArgs(bump.ptr(), bumped.ptr(), nullptr);
            if (!none)
                throw nb::python_error();
            Py_DECREF(none);
        }
        return report ? nb::cast(report.release(), nb::rv_policy::take_ownership) : nb::none();
    }

    /* One call: gives back at its end, however it ends, what it looked at. */
    struct Call {
        Optimizer &self;
        explicit Call(Optimizer &of) : self(of)
        {
            try {
                self.begin();
            } catch (...) {
                self.held.clear();
                throw;
            }
        }
        ~Call()
        {
            self.held.clear();
        }
        Call(const Call &) = delete;
        Call &operator=(const Call &) = delete;
    };

    std::vector<void *> outputs(nb::object out, std::unique_ptr<View[]> &views)
    {
        std::vector<void *> pointers;
        if (out.is_none())
            return pointers;
        nb::list list = nb::cast<nb::list>(out);
        if (nb::len(list) != params.size()) {
            PyErr_SetString(PyExc_ValueError, "outputs: one array per tensor is needed");
            throw nb::python_error();
        }
        views.reset(new View[params.size()]);
        for (size_t k = 0; k < params.size(); k++) {
            const sut_dtype dtype = params[k].layout.dtype == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
            views[k].open(nb::object(list[k]).ptr(), "output for '" + params[k].name + "'", true);
            if (views[k].dtype != dtype || views[k].count != params[k].layout.count || !views[k].is_contiguous()) {
                PyErr_Format(PyExc_ValueError, "the output for '%s' must be contiguous, of type %s and of its size",
                             params[k].name.c_str(), dtype_text(dtype));
                throw nb::python_error();
            }
            pointers.push_back(views[k].data);
        }
        return pointers;
    }

    /* True when a value of the group is not the object that was last seen. What is not a float, int, bool or tuple may
     * change inside, so it counts as new each time. */
    bool remember(int k, nb::dict group)
    {
        if (k < 0 || (size_t)k >= remembered.size())
            raise(SUT_ERROR_OUT_OF_RANGE, "there is no such group");
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
            if (value == old[j].ptr() &&
                (!value || PyFloat_Check(value) || PyLong_Check(value) || PyTuple_Check(value)))
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
        check(sut_optimizer_save_memory(opt, &c, &data, &size), context->ctx);
        nb::bytes result(static_cast<const char *>(data), size);
        sut_buffer_free(context->ctx, data);
        return result;
    }

    void after_load(bool include_parameters)
    {
        for (size_t k = 0; k < hyper.size(); k++) {
            (void)sut_optimizer_get_hyper(opt, (int)k, &hyper[k]);
            remembered[k].clear();
        }
        if (include_parameters && bump.is_valid())
            bump(bumped);
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
    std::vector<param> params;
    std::vector<sut_hyper> hyper;
    std::vector<std::string> names_of_losses;
    std::vector<const void *> grads;
    std::vector<std::vector<char>> copies;
    std::vector<double> loss_values;
    Held held; /* by the call that is going on */
    nb::str grad_name;
    std::vector<nb::str> keys;
    std::vector<std::vector<nb::object>> remembered;
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
    nb::class_<Optimizer>(module, "Optimizer", nb::type_slots(slots))
        .def(nb::init<const char *, nb::list, nb::list, int, nb::object, const char *, nb::dict, int, uint64_t,
                      const char *>(),
             nb::arg("method"), nb::arg("tensors"), nb::arg("groups"), nb::arg("n_losses"),
             nb::arg("loss_names").none(), nb::arg("surgery"), nb::arg("options"), nb::arg("threads"), nb::arg("seed"),
             nb::arg("isa"))
        .def("step", &Optimizer::step, nb::arg("rows"), nb::arg("losses").none(), nb::arg("report"))
        .def("step_grad", &Optimizer::step_grad, nb::arg("report"))
        .def("direction", &Optimizer::direction, nb::arg("rows"), nb::arg("losses").none(), nb::arg("out").none())
        .def("set_group", &Optimizer::set_group)
        .def("group", &Optimizer::group)
        .def("set_lr", &Optimizer::set_lr, nb::arg("lr"), nb::arg("group"))
        .def("set_align", &Optimizer::set_align, nb::arg("align"), nb::arg("rho_m"), nb::arg("rho_v"))
        .def("parameters_changed", &Optimizer::parameters_changed)
        .def("save", &Optimizer::save, nb::arg("path"), nb::arg("include_parameters"))
        .def("load", &Optimizer::load, nb::arg("path"), nb::arg("include_parameters"), nb::arg("restore_settings"))
        .def("to_bytes", &Optimizer::to_bytes, nb::arg("include_parameters"))
        .def("from_bytes", &Optimizer::from_bytes, nb::arg("data"), nb::arg("include_parameters"),
             nb::arg("restore_settings"))
        .def("fits", &Optimizer::fits)
        .def("state", &Optimizer::state)
        .def("state_names", &Optimizer::state_names)
        .def("tensor_steps", &Optimizer::tensor_steps)
        .def("tensor_names", &Optimizer::tensor_names)
        .def("after_step", &Optimizer::after_step)
        .def_prop_ro("steps", &Optimizer::steps)
        .def_prop_ro("skipped_steps", &Optimizer::skipped_steps)
        .def_prop_ro("n_losses", &Optimizer::losses)
        .def_prop_ro("generation", &Optimizer::current_generation)
        .def_prop_ro("threads", &Optimizer::threads)
        .def_prop_ro("memory", &Optimizer::memory);
}

} // namespace suture_python
