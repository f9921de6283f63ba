/**
 * @file suture.h
 * Suture: an embeddable optimizer and gradient-surgery library. This header includes all others.
 *
 * A training loop that has several losses hands Suture one gradient per loss; Suture combines them, turns the combination
 * into an optimizer step, and makes sure that the step that is really applied hurts none of the losses.
 *
 *     sut_context *ctx;
 *     sut_context_create(&ctx, NULL);
 *
 *     sut_tensor theta = {.data = x, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {n}, .name = "theta"};
 *     sut_optimizer_config cfg;
 *     sut_optimizer_config_init(&cfg, SUT_OPTIMIZER_ADAM);
 *     cfg.tensors = &theta;
 *     cfg.n_tensors = 1;
 *     cfg.n_losses = 2;
 *     cfg.surgery.method = SUT_SURGERY_CONFIG;
 *     cfg.align = SUT_ALIGN_GUA;
 *     sut_optimizer *opt;
 *     sut_optimizer_create(&opt, ctx, &cfg);
 *
 *     const void *grads[2] = {g0, g1};               // row i: gradient of loss i
 *     sut_optimizer_step(opt, grads, NULL, NULL);    // once per iteration
 *
 * From simplest to most detailed:
 *   1. sut_optimizer_step()                              a whole step (optimizer.h)
 *   2. sut_optimizer_propose(), _project(), _apply()     the same step in stages, same bits
 *   3. sut_surgery_direction(), sut_cone_project()       the pieces, on plain arrays (surgery.h, cone.h)
 *
 * Conventions. Every function that can fail returns sut_status, and a call that fails has changed nothing. Handles are
 * opaque; configurations carry their size and are filled in by their _init function. Sizes are 64-bit. There is no global
 * state; nothing aborts, prints or exits. The same inputs give the same bits for any number of threads and on every
 * instruction set. Before version 1.0 a minor version may change the interface; CHANGELOG.md then gives the lines to write.
 */
#ifndef SUTURE_H
#define SUTURE_H

#include "suture/checkpoint.h"
#include "suture/cone.h"
#include "suture/context.h"
#include "suture/optimizer.h"
#include "suture/schedule.h"
#include "suture/status.h"
#include "suture/surgery.h"

#endif /* SUTURE_H */
