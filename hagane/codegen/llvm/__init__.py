"""The LLVM code generator. T: a Type or "f32", "16xi8"; x: a Value, Var or number; p a pointer; v a Value.

Module(target): function(name, [(arg, T[, attrs])], result, internal, inline) declare constant lanes(T) text
Function f: arg(n) ret(x) call(fn, *x) call_pointer address_of intrinsic(name, T, *v) const(T, x) exact
load(T, p, off, align) store(v, p, off, align, nontemporal) masked_load(T, p, mask, off, fill) copy fill
stack masked_store(v, p, mask, off) gather(T, p, offs, mask, fill) scatter(v, p, offs, mask) ptr(p, off)
prefetch broadcast(x, n) load_broadcast(T, n, p, off) iota(n, T) const_vector mask_below(n, lanes) extract
insert concat shuffle(a, b, lanes) slice transpose(rows) reduce(v, op) reduce_sum|prod|max|min any all;
Var(f, T, x) .value .set x.lt|le|gt|ge|eq|ne|ult|ule|ugt|uge(y) x.ashr x.srem select(c, a, b) fma abs sqrt
floor ceil trunc copysign is_nan round_half_even fmax fmin (NaN propagates) fmax_fast fmin_fast imax imin
floor_div floor_mod dot_bf16 dot_u8s8 cast(v, T, signed, saturate) bitcast float_bits narrow_bf16_native;
atomic_* compare_exchange fence pause with f.loop(lo, hi, step, keep) as i, loop_nonempty, while_(fn),
if_(c), if_else(c) as (then, otherwise)
math: exp(v), ...; compile: compile_module, count_spills; pool: CompilePool; link: link(objects, exports) ->
Blob
"""

from hagane.codegen.llvm.dsl import Function, Module, Operand, Type, Value, Var

__all__ = ["Function", "Module", "Operand", "Type", "Value", "Var"]
