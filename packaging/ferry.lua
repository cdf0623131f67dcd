-- Module file of ferry for Lmod, below PREFIX/share/modulefiles (`module use`).
-- man finds the manual pages by PATH.
local prefix = myFileName():match("^(.*)/share/modulefiles/")
if not prefix then
   LmodError("ferry: the module file is not below PREFIX/share/modulefiles; use the folder of the installation")
end
help([[Message passing for Go with MPI-4 Sessions semantics. Manual page: ferry(1).]])
whatis("Name: ferry")
whatis("Version: " .. myModuleVersion())
whatis("Description: message passing for Go with MPI-4 Sessions semantics")
conflict("ferry")
if prefix ~= "/usr" then -- a package's; the system's PATH has it
   prepend_path("PATH", pathJoin(prefix, "bin"))
end
