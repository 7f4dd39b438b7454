// The folder of this project, also where a folder above has a lock file.
export default { turbopack: { root: import.meta.dirname } };
