/*
 * Pass 3: p = u + M^-1 G^T lambda, theta <- theta - lr p, the state realigned, G p measured. MEASURE takes the same sums and
 * writes nothing else. Which p, and with which multipliers, is read from the control block in device memory.
 */
#ifndef SUT_KERNELS_APPLY_CUH
#define SUT_KERNELS_APPLY_CUH

#include "kernels/pass.cuh"

namespace
{

struct update_sums {
    double lengths[3], slack[SUT_CUDA_FEW];
};

/* What a strip does with its tensor, the same for all of its threads. */
struct plan {
    int what;         /* of the rule, in the end */
    bool terms_first; /* u is needed before p can be formed */
    bool from_u;      /* p = u, same bits */
    bool multipliers; /* chi = sum lambda_i g_i */
    bool realign;
    const void *given; /* p itself */
};

SUT_GPU plan plan_of(const sut_cuda_tensor *tensor, const sut_cuda_setting *setting, const sut_cuda_control *control,
                     bool writes)
{
    const int update = control->update;
    plan s;
    s.given = update == SUT_UPDATE_GIVEN ? tensor->p_in : nullptr;
    s.from_u = tensor->lr == 0 || update == SUT_UPDATE_PROPOSAL || (update == SUT_UPDATE_GIVEN && !s.given);
    s.multipliers = !s.from_u && (update == SUT_UPDATE_NATURAL || update == SUT_UPDATE_EUCLIDEAN);
    s.realign = !s.from_u && control->realign;
    if (tensor->lr == 0) {
        /* The tensor stays where it is; a state that was left for this pass is written all the same. */
        s.terms_first = tensor->p_out != nullptr;
        s.what = writes && setting->deferred ? ADVANCE : TERMS;
        s.realign = false;
        return s;
    }
    s.what = s.from_u ? APPLY : update == SUT_UPDATE_NATURAL && !control->corrected ? CHI : GIVEN;
    s.terms_first = s.what == GIVEN && s.multipliers;
    return s;
}

/* p where the rule does not form it itself. */
template <class Real, bool FEW>
SUT_GPU void form_update(const sut_cuda_args &args, const plan &s, const piece &p, const few_rows<Real> &g,
                         elements<Real> *b)
{
    if (s.given)
        b->p = load_own<Real>(s.given, p.tensor->own, p.at, p.left);
    else if (s.multipliers)
        add_multipliers<Real, FEW>(args, p, g, args.control->update == SUT_UPDATE_NATURAL, b);
    else
        b->p = zeros<Real>();
}

/* One slice. FORMS: p may be other than the rule's own u or p, or is asked for. The ordinary step does without. */
template <class Real, bool FEW, bool FORMS>
SUT_GPU void apply_body(const sut_cuda_args &args, int slice, const block_memory memory)
{
    double *const total = memory.total, *const scratch = memory.scratch;
    Real *const aside = static_cast<Real *>(memory.aside);
    const bool strict = args.strict != 0, writes = args.kind == SUT_PASS_APPLY;
    update_sums sum = {};
    if (args.want_sums)
        clear_totals(total, args.n_sums);
    const int64_t end = slice_begin(args.n_chunks, args.n_slices, slice + 1);
    for (int64_t c = slice_begin(args.n_chunks, args.n_slices, slice); c < end; ++c) {
        const sut_cuda_chunk chunk = chunk_of(args, c);
        const sut_cuda_tensor *const tensor = &args.tensors[chunk.tensor];
        if (!tensor->present)
            continue;
        const sut_cuda_setting *const setting = &args.settings[tensor->setting];
        const plan s = plan_of(tensor, setting, args.control, writes);
        const bool sums = args.want_sums && tensor->lr != 0;
        const Real ratio = (Real)(tensor->ratio * args.u_scale);
        for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
            const piece p = piece_of(args, chunk, strip);
            few_rows<Real> g = {};
            if (FEW && (sums || s.multipliers || args.direct || args.weighted))
                load_few(args, p, &g);
            elements<Real> b = {};
            if (tensor->lr != 0 || setting->uses_theta)
                b.theta = load_own<Real>(tensor->theta, tensor->own, p.at, p.left);
            b.a = direction<Real, FEW>(args, p, g, setting, b.theta);
            if (s.multipliers)
                combine<Real, FEW>(args, p, g, args.control->lambda, b.chi);
            /* One place for the rule: its code is long. */
            for (int round = FORMS && s.terms_first ? 0 : 1; round < 2; ++round) {
                if (FORMS && round == 1 && s.what == GIVEN)
                    form_update<Real, FEW>(args, s, p, g, &b);
                run_rule<Real, true>(setting, FORMS && round == 0 ? TERMS : s.what, s.realign, p, writes, &b);
                if (!FORMS)
                    break;
            }
            if (writes && tensor->lr != 0)
                store_theta(tensor, p, b.theta);
            if (tensor->p_out)
                store_own(tensor->p_out, tensor->own, p.at, p.left, b.p);
            if (!sums)
                continue;

            const four<Real> u = times(mask(b.u, p.left), ratio), q = times(mask(b.p, p.left), ratio);
            sum.lengths[0] += dot(q, q, strict);
            sum.lengths[1] += dot(q, u, strict);
            sum.lengths[2] += distance(q, u, strict);
            if constexpr (FEW) {
#pragma unroll
                for (int i = 0; i < SUT_CUDA_FEW; ++i)
                    if (i < args.m)
                        sum.slack[i] += dot(q, g.row[i], strict);
            } else {
                const int in_panel = strip / SUT_CUDA_STRIP % PANEL;
                Real *const ps = aside;
                put_aside(ps, in_panel, q);
                if (in_panel == PANEL - 1 || strip + SUT_CUDA_STRIP >= chunk.count)
                    add_tiles<Real>(args, chunk, strip - in_panel * SUT_CUDA_STRIP, ps, nullptr, scratch, total);
            }
        }
    }
    if (!args.want_sums)
        return;
    add_to_block(sum.lengths, place_from{SUT_SUM_PP, 3}, scratch, total);
    if (FEW)
        add_to_block(sum.slack, place_from{SUT_SUM_ROWS, args.m}, scratch, total);
    finish_sums(args, slice, memory);
}

} // namespace

#endif // SUT_KERNELS_APPLY_CUH
