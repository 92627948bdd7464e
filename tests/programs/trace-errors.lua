-- Errors that pass through C functions, Lua functions, coroutines, metamethods and callbacks, caught by pcall. Prints the same each
-- time it runs.
print(pcall(error,"z"))
print(type(select(2,pcall(function() error({}) end))))
local function f(n) if n==0 then error("deep") end return f(n-1)+1 end
print(select('#',pcall(f,50)))
local c=coroutine.wrap(function() for i=1,100 do local ok=pcall(error,i); coroutine.yield(ok) end error("end") end)
local n=0; for i=1,100 do if c()==false then n=n+1 end end; print(n, pcall(c))
print(pcall(string.rep)); print(pcall(string.gsub,"abc",".",function(x) if x=="c" then error("in gsub",0) end end))
print(select(2,xpcall(function() local x=nil; x.y=1 end, function(m) return "handled" end)))
local s=0; for i=1,2000 do local ok,e=pcall(function() if i%3==0 then error(i,0) end return i end); if not ok then s=s+e end end; print(s)
local t=setmetatable({},{__index=function(t,k) error("no "..k,0) end}); print(pcall(function() return t.x end))
print(pcall(table.sort,{3,2,1},function(a,b) error("cmp",0) end))
local ffi=require("ffi"); ffi.cdef"void qsort(void*,size_t,size_t,int(*)(const void*,const void*));"
local a=ffi.new("int[10]",{5,3,8,1,9,2,7,4,6,0}); ffi.C.qsort(a,10,4,function(x,y) local p,q=ffi.cast("int*",x)[0],ffi.cast("int*",y)[0]; return p<q and -1 or p>q and 1 or 0 end); print(a[0],a[9])
local z=0
for i=1,1e6 do z=z+i%7 end
print(z)
